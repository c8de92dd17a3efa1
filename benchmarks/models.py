"""Models that are measured: objects whose handlers do nothing in one step, and the same without the framework."""

import time
from typing import Any

from django.db import models
from django.db.models import Q

from benchmarks import offered
from stator.graph import State, StateGraph
from stator.models import StateField, StatorModel


class AsyncGraph(StateGraph):
    """One step, asynchronous."""

    new = State(try_interval=60)
    done = State()
    new.transitions_to(done)

    @classmethod
    async def handle_new(cls, instance: Any) -> State:
        """Move on at once."""
        return cls.done


class SyncGraph(StateGraph):
    """One step, synchronous."""

    new = State(try_interval=60)
    done = State()
    new.transitions_to(done)

    @classmethod
    def handle_new(cls, instance: Any) -> State:
        """Move on at once."""
        return cls.done


class AwaitingGraph(StateGraph):
    """Moved by an event."""

    new = State()
    done = State()
    new.on("approve").to(done)


class TimedGraph(StateGraph):
    """One step whose start time is recorded."""

    new = State(try_interval=60)
    done = State()
    new.transitions_to(done)

    started: dict[int, float] = {}

    @classmethod
    async def handle_new(cls, instance: Any) -> State:
        """Note the time and move on."""
        cls.started[instance.pk] = time.perf_counter()
        return cls.done


class OfferedGraph(StateGraph):
    """One step, which does the work of a job at a steady rate."""

    new = State(try_interval=60)
    done = State()
    new.transitions_to(done)

    @classmethod
    async def handle_new(cls, instance: Any) -> State:
        """Do it and move on."""
        await offered.run(instance.due)
        return cls.done


class CountedGraph(StateGraph):
    """One step, counted in this process."""

    new = State(try_interval=60)
    done = State()
    new.transitions_to(done)

    handled = 0

    @classmethod
    async def handle_new(cls, instance: Any) -> State:
        """Count and move on."""
        CountedGraph.handled += 1
        return cls.done


class ChainGraph(StateGraph):
    """Four steps, one after the other."""

    new = State(try_interval=60)
    second = State(try_interval=60)
    third = State(try_interval=60)
    fourth = State(try_interval=60)
    done = State()
    new.transitions_to(second)
    second.transitions_to(third)
    third.transitions_to(fourth)
    fourth.transitions_to(done)

    @classmethod
    async def handle_new(cls, instance: Any) -> State:
        """Move on at once."""
        return cls.second

    @classmethod
    async def handle_second(cls, instance: Any) -> State:
        """Move on at once."""
        return cls.third

    @classmethod
    async def handle_third(cls, instance: Any) -> State:
        """Move on at once."""
        return cls.fourth

    @classmethod
    async def handle_fourth(cls, instance: Any) -> State:
        """Move on at once."""
        return cls.done


class LoopGraph(StateGraph):
    """An endless loop between two states, so that a worker never runs out of work."""

    new = State(try_interval=60, force_initial=True)
    other = State(try_interval=60)
    new.transitions_to(other)
    other.transitions_to(new)

    @classmethod
    async def handle_new(cls, instance: Any) -> State:
        """Move on at once."""
        return cls.other

    @classmethod
    async def handle_other(cls, instance: Any) -> State:
        """Move back at once."""
        return cls.new


class BatchGraph(StateGraph):
    """One step for up to 500 objects."""

    new = State(try_interval=60, batch=500)
    done = State()
    new.transitions_to(done)

    @classmethod
    async def handle_new(cls, instances: list[Any]) -> State:
        """Move all on at once."""
        return cls.done


class AtomicGraph(StateGraph):
    """One step whose write commits with it."""

    new = State(try_interval=60, atomic=True)
    done = State()
    new.transitions_to(done)

    @classmethod
    def handle_new(cls, instance: Any) -> State:
        """Write and move on."""
        instance.payload = "y"
        instance.save(update_fields=["payload"])
        return cls.done


class AtomicBatchGraph(StateGraph):
    """One step whose write commits with it, for up to 500 objects."""

    new = State(try_interval=60, atomic=True, batch=500)
    done = State()
    new.transitions_to(done)

    @classmethod
    def handle_new(cls, instances: list[Any]) -> State:
        """Write and move all on."""
        type(instances[0]).objects.filter(pk__in=[instance.pk for instance in instances]).update(payload="y")
        return cls.done


class SetGraph(StateGraph):
    """One step without a handler."""

    new = State()
    done = State()
    new.when(Q(payload="x")).to(done)


class PageGraph(StateGraph):
    """A graph with something to show on each page of the admin."""

    new = State(try_interval=60, expect_within=3600)
    checked = State(externally_progressed=True, expect_within=30 * 86400)
    done = State()
    failed = State()
    new.transitions_to(checked)
    new.fails_to(failed)
    checked.transitions_to(done)

    @classmethod
    async def handle_new(cls, instance: Any) -> State:
        """Move on at once."""
        return cls.checked


class AsyncItem(StatorModel):
    """Moved on the event loop."""

    state = StateField(AsyncGraph)
    payload = models.CharField(max_length=50, default="x")


class SpreadItem(StatorModel):
    """Moved on the event loop, and claimed a slice at a time."""

    state = StateField(AsyncGraph)
    payload = models.CharField(max_length=50, default="x")

    class StatorMeta:
        spread = "shard"


class DividedItem(StatorModel):
    """The same; its table is divided over partitions."""

    state = StateField(AsyncGraph)
    payload = models.CharField(max_length=50, default="x")

    class StatorMeta:
        spread = "shard"


class TenantItem(StatorModel):
    """The same, divided by a field of the project whose values take turns."""

    state = StateField(AsyncGraph)
    payload = models.CharField(max_length=100, default="x")
    tenant = models.IntegerField(default=0)

    class StatorMeta:
        spread = "tenant"
        fair_by = "tenant"


class FairItem(StatorModel):
    """The same in one table, without slices."""

    state = StateField(AsyncGraph)
    payload = models.CharField(max_length=100, default="x")
    tenant = models.IntegerField(default=0)

    class StatorMeta:
        fair_by = "tenant"


class SyncItem(StatorModel):
    """Moved in a thread."""

    state = StateField(SyncGraph)
    payload = models.CharField(max_length=50, default="x")


class KeptItem(StatorModel):
    """Moved on the event loop, with history."""

    state = StateField(AsyncGraph)
    payload = models.CharField(max_length=50, default="x")

    class StatorMeta:
        """Keep the history."""

        history = True


class CountedItem(StatorModel):
    """Counted as it moves."""

    state = StateField(CountedGraph)
    payload = models.CharField(max_length=50, default="x")


class ChainItem(StatorModel):
    """Moved four times."""

    state = StateField(ChainGraph)
    payload = models.CharField(max_length=50, default="x")


class LoopItem(StatorModel):
    """Moved for ever."""

    state = StateField(LoopGraph)
    payload = models.CharField(max_length=50, default="x")


class KeptLoopItem(StatorModel):
    """Moved for ever, with history."""

    state = StateField(LoopGraph)

    class StatorMeta:
        """Keep the history."""

        history = True


class BatchItem(StatorModel):
    """Moved 500 at a time."""

    state = StateField(BatchGraph)
    payload = models.CharField(max_length=50, default="x")


class AtomicItem(StatorModel):
    """Moved together with a write."""

    state = StateField(AtomicGraph)
    payload = models.CharField(max_length=50, default="x")


class AtomicBatchItem(StatorModel):
    """Moved together with writes, 500 at a time."""

    state = StateField(AtomicBatchGraph)
    payload = models.CharField(max_length=50, default="x")


class SetItem(StatorModel):
    """Moved by SQL."""

    state = StateField(SetGraph)
    payload = models.CharField(max_length=50, default="x")


class KeptSetItem(StatorModel):
    """Moved by SQL, with history."""

    state = StateField(SetGraph)
    payload = models.CharField(max_length=50, default="x")

    class StatorMeta:
        """Keep the history."""

        history = True


class AwaitingItem(StatorModel):
    """Waits for an event."""

    state = StateField(AwaitingGraph)


class TimedItem(StatorModel):
    """Records when its handler began."""

    state = StateField(TimedGraph)


class OfferedItem(StatorModel):
    """An object that is due at a Unix time."""

    state = StateField(OfferedGraph)
    due = models.FloatField()


class PageItem(StatorModel):
    """For the admin pages: with history, and an indexed field to search."""

    state = StateField(PageGraph)
    name = models.CharField(max_length=50, db_index=True)

    class StatorMeta:
        history = True


class PlainItem(models.Model):
    """The same fields without the framework."""

    state = models.CharField(max_length=100, default="new")
    payload = models.CharField(max_length=50, default="x")


class WholeGraph(StateGraph):
    """An object that waits for all of its parts."""

    new = State()
    done = State()
    new.when_all("parts", in_=["done"]).to(done)


class PlainWholeGraph(StateGraph):
    """An object for which its parts do nothing."""

    new = State(externally_progressed=True)
    done = State()
    new.transitions_to(done)


class Whole(StatorModel):
    """Moved by the last of its parts."""

    state = StateField(WholeGraph)


class PlainWhole(StatorModel):
    """Not moved by its parts."""

    state = StateField(PlainWholeGraph)


class Part(StatorModel):
    """Its move may move a whole."""

    state = StateField(AsyncGraph)
    payload = models.CharField(max_length=50, default="x")
    whole = models.ForeignKey(Whole, on_delete=models.CASCADE, related_name="parts")

    class Meta:
        indexes = [models.Index(fields=["whole", "state"], name="part_whole_state")]


class PlainPart(StatorModel):
    """Its move concerns itself alone."""

    state = StateField(AsyncGraph)
    payload = models.CharField(max_length=50, default="x")
    whole = models.ForeignKey(PlainWhole, on_delete=models.CASCADE, related_name="parts")

    class Meta:
        indexes = [models.Index(fields=["whole", "state"], name="plainpart_whole_state")]
