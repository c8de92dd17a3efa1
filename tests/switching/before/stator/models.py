"""Stands in for the package of before: its names and columns, with the least that moves rows.

``settings.MARKED``: the columns of its earlier versions, which mark what may be attempted, instead of those of later
ones, which know when a row is due.
"""

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.utils import timezone


class State:
    """One state of a graph."""

    def __init__(
        self,
        try_interval: float | None = None,
        *,
        externally_progressed: bool = False,
        attempt_immediately: bool = True,
        force_initial: bool = False,
        delete_after: float | None = None,
    ) -> None:
        self.try_interval = try_interval
        self.externally_progressed = externally_progressed
        self.attempt_immediately = attempt_immediately
        self.initial = force_initial
        self.delete_after = delete_after
        self.children: list[State] = []

    def __set_name__(self, owner: Any, name: str) -> None:
        self.name = name

    def transitions_to(self, other: "State") -> None:
        """Declare an edge."""
        self.children.append(other)

    def times_out_to(self, other: "State", seconds: float) -> None:
        """Declare a timeout, which is not taken here."""
        self.children.append(other)


class StateGraph:
    """The states of a model."""

    def __init_subclass__(cls) -> None:
        cls.states = {name: value for name, value in vars(cls).items() if isinstance(value, State)}
        cls.choices = [(name, name) for name in cls.states]
        cls.automatic_states = [state for state in cls.states.values() if state.children and state.try_interval]
        [cls.initial_state] = [state for state in cls.states.values() if state.initial]


class StateField(models.CharField):
    """The name of a state; migrations know its graph."""

    def __init__(self, graph: Any, **kwargs: Any) -> None:
        self.graph = graph
        kwargs.setdefault("max_length", 100)
        super().__init__(**{**kwargs, "choices": graph.choices, "default": graph.initial_state.name})

    def deconstruct(self) -> Any:
        name, path, args, kwargs = super().deconstruct()
        return name, path, args, {**kwargs, "graph": self.graph}


class MarkedModel(models.Model):
    """The columns of earlier versions."""

    state_ready = models.BooleanField(default=True)
    state_changed = models.DateTimeField(auto_now_add=True)
    state_attempted = models.DateTimeField(blank=True, null=True)
    state_locked_until = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True

    @classmethod
    def due(cls, state: State) -> Q:
        """Rows in a state that are marked, or were attempted long enough ago."""
        last = timezone.now() - timedelta(seconds=state.try_interval or 0)
        return Q(state_ready=True) | Q(state_attempted=None) | Q(state_attempted__lte=last)

    @classmethod
    def waiting(cls, state: State) -> dict[str, Any]:
        """What is written to a row that waits."""
        return {"state_ready": False, "state_attempted": timezone.now()}

    @classmethod
    def entering(cls, state: State) -> dict[str, Any]:
        """What is written to a row that enters a state."""
        at_once = state.attempt_immediately
        return {"state_ready": at_once, "state_attempted": None if at_once else timezone.now()}


class DueModel(models.Model):
    """The columns of later versions."""

    state_changed = models.DateTimeField(auto_now_add=True)
    state_next_attempt = models.DateTimeField(blank=True, null=True)
    state_locked_until = models.DateTimeField(null=True, blank=True, db_index=True)

    class Meta:
        abstract = True

    @classmethod
    def due(cls, state: State) -> Q:
        """Rows whose time has come."""
        return Q(state_next_attempt=None) | Q(state_next_attempt__lte=timezone.now())

    @classmethod
    def waiting(cls, state: State) -> dict[str, Any]:
        """What is written to a row that waits."""
        return {"state_next_attempt": timezone.now() + timedelta(seconds=state.try_interval or 0)}

    @classmethod
    def entering(cls, state: State) -> dict[str, Any]:
        """What is written to a row that enters a state."""
        return {"state_next_attempt": None} if state.attempt_immediately else cls.waiting(state)


class StatorModel(MarkedModel if settings.MARKED else DueModel):
    """The mixin."""

    class Meta:
        abstract = True

    @classmethod
    def attempt_due(cls) -> None:
        """Attempt every row that is due, once."""
        graph = cls._meta.get_field("state").graph
        for state in graph.automatic_states:
            for row in list(cls.objects.filter(cls.due(state), state=state.name, state_locked_until=None)):
                to = getattr(graph, f"handle_{state.name}")(row)
                moved = {"state": to.name, "state_changed": timezone.now(), **cls.entering(to)} if to else None
                cls.objects.filter(pk=row.pk, state=F("state")).update(**(moved or cls.waiting(state)))


class Stats(models.Model):
    """Statistics, in a table that ours has as well, with other columns."""

    model_label = models.CharField(max_length=200, primary_key=True)
    statistics = models.JSONField()
