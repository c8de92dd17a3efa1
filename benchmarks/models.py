"""What is measured: objects that take one step by a handler that does nothing, and the same without the framework."""

import time
from typing import Any

from django.db import models

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


class TimedGraph(StateGraph):
    """One step that notes when it began."""

    new = State(try_interval=60)
    done = State()
    new.transitions_to(done)

    started: dict[int, float] = {}

    @classmethod
    async def handle_new(cls, instance: Any) -> State:
        """Note the time and move on."""
        cls.started[instance.pk] = time.perf_counter()
        return cls.done


class AsyncItem(StatorModel):
    """Moved on the event loop."""

    state = StateField(AsyncGraph)
    payload = models.CharField(max_length=50, default="x")


class SyncItem(StatorModel):
    """Moved in a thread."""

    state = StateField(SyncGraph)
    payload = models.CharField(max_length=50, default="x")


class TimedItem(StatorModel):
    """Tells when its handler began."""

    state = StateField(TimedGraph)


class PlainItem(models.Model):
    """The same without the framework."""

    state = models.CharField(max_length=100, default="new")
    payload = models.CharField(max_length=50, default="x")
