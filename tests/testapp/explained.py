"""A model whose objects can be held up in every way that there is."""

from django.db import models

from stator.graph import State, StateGraph
from stator.models import StateField, StatorModel


class ErrandGraph(StateGraph):
    """One state of each kind."""

    new = State(try_interval=60)
    limited = State(try_interval=60, concurrency=1)
    outside = State(externally_progressed=True)
    asked = State(externally_progressed=True)
    heir = State(try_interval=60, renamed_from="former")
    done = State()
    swept = State(delete_after=3600)

    new.transitions_to(limited, outside, asked, heir, done, swept)
    limited.transitions_to(done)
    outside.times_out_to(done, seconds=3 * 86400)
    asked.transitions_to(done)
    heir.transitions_to(done)
    heir.fails_to(swept)
    asked.when(models.Q(tenant=-1)).to(done)

    @classmethod
    def handle_new(cls, errand):
        return cls.done

    @classmethod
    def handle_limited(cls, errand):
        return cls.done

    @classmethod
    async def handle_heir(cls, errand):
        return cls.done


class Errand(StatorModel):
    state = StateField(ErrandGraph)
    tenant = models.IntegerField(default=0)
    name = models.CharField(max_length=50, blank=True)
