"""A model whose rows are spread over slices."""

from uuid import uuid4

from django.db import models

from stator.graph import State, StateGraph
from stator.models import StateField, StatorModel


class SheetGraph(StateGraph):
    """Alone, in a batch, or two at a time; or by time."""

    new = State(try_interval=60, force_initial=True)
    stacked = State(try_interval=60, batch=20)
    narrow = State(try_interval=60, concurrency=2)
    left = State(externally_progressed=True)
    done = State()
    old = State(delete_after=3600)
    new.transitions_to(done, stacked, narrow, left, old)
    stacked.transitions_to(done)
    narrow.transitions_to(done)
    left.times_out_to(done, seconds=3600)

    @classmethod
    async def handle_new(cls, sheet):
        return cls.done

    @classmethod
    def handle_stacked(cls, sheets):
        return cls.done

    @classmethod
    async def handle_narrow(cls, sheet):
        return cls.done


class Sheet(StatorModel):
    id = models.UUIDField(primary_key=True, default=uuid4)
    state = StateField(SheetGraph)

    class StatorMeta:
        spread = "shard"
        history = True


class Leaf(StatorModel):
    """The database numbers them."""

    state = StateField(SheetGraph)

    class StatorMeta:
        spread = "shard"
