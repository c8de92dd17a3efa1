"""Models of the test app: each graph shows one thing."""

from django.db import models

from stator.graph import State, StateGraph
from stator.models import StateField, StatorModel
from tests.testapp import approvals, basic, baskets, dated, keys, lives, mails, operators, shadowed, stepped, takahe  # noqa: F401


class LineGraph(StateGraph):
    """Three states in a line, moved by asynchronous handlers that do nothing else."""

    first = State(try_interval=60)
    second = State(try_interval=60)
    last = State()

    first.transitions_to(second)
    second.transitions_to(last)

    @classmethod
    async def handle_first(cls, instance):
        return cls.second

    @classmethod
    async def handle_second(cls, instance):
        return cls.last


class SyncGraph(StateGraph):
    """Two states, moved by a synchronous handler that does nothing else."""

    first = State(try_interval=60)
    last = State()

    first.transitions_to(last)

    @classmethod
    def handle_first(cls, instance):
        return cls.last


class Line(StatorModel):
    state = StateField(LineGraph)
    name = models.CharField(max_length=50, blank=True)


class SyncLine(StatorModel):
    state = StateField(SyncGraph)


from tests.testapp import explained, fairness, faults, harmed, power, spreading, waiting  # noqa: E402, F401
