"""Models whose objects wait for others."""

from django.db import models

from stator.graph import State, StateGraph
from stator.models import StateField, StatorModel


class BuildGraph(StateGraph):
    """The awaited object: it moves by an attempt, a timeout, a condition, or by hand."""

    compiling = State(try_interval=60)
    checked = State(externally_progressed=True)
    built = State()
    broken = State()
    compiling.transitions_to(built, checked)
    compiling.fails_to(broken)
    checked.times_out_to(broken, seconds=3600)
    checked.when(models.Q(approved=True)).to(built)

    @classmethod
    def handle_compiling(cls, build):
        return None if build.slow else cls.built


class Build(StatorModel):
    state = StateField(BuildGraph)
    slow = models.BooleanField(default=False)
    approved = models.BooleanField(default=False)


class RolloutGraph(StateGraph):
    """Waits in two states, and times out of one of them."""

    new = State(try_interval=60)
    started = State(try_interval=60)
    stale = State()
    done = State()
    new.transitions_to(started)
    new.times_out_to(stale, seconds=7200)
    started.transitions_to(done)

    @classmethod
    def handle_new(cls, rollout):
        return cls.started

    @classmethod
    async def handle_started(cls, rollout):
        return cls.done


class Rollout(StatorModel):
    state = StateField(RolloutGraph)
    build = models.ForeignKey(Build, null=True, on_delete=models.SET_NULL, related_name="rollouts")
    after = models.ForeignKey("self", null=True, on_delete=models.CASCADE)
    name = models.CharField(max_length=50, blank=True)

    class StatorMeta:
        waits_for = {"build": [BuildGraph.built, "broken"], "after": ["done"]}
