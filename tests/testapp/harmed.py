"""Further models that the fault tests harm, each for one promise: effects in the transaction, limits, back-off."""

import asyncio
import threading
from pathlib import Path
from typing import Any

from django.db import models

from stator.graph import State, StateGraph
from stator.models import StateField, StatorModel
from tests.testapp.faults import GLANCE, effect_of, work


class BookingGraph(StateGraph):
    """Two steps whose effects are written in the transaction that moves the object on."""

    fresh = State(try_interval=0.2, backoff=0.2, atomic=True)
    halfway = State(try_interval=0.2, backoff=0.2, atomic=True)
    done = State()

    fresh.transitions_to(halfway)
    halfway.transitions_to(done)

    @classmethod
    def handle_fresh(cls, instance):
        book(instance)
        return cls.halfway

    @classmethod
    def handle_halfway(cls, instance):
        book(instance)
        return cls.done


def book(instance: Any) -> None:
    """Leave a trace on each side of the work, so that half of it would be seen."""
    effect_of(instance).save()
    threading.Event().wait(instance.seconds)
    Booking.objects.filter(pk=instance.pk).update(booked=models.F("booked") + 1)


class Booking(StatorModel):
    state = StateField(BookingGraph)
    seconds = models.FloatField(default=0.0)
    booked = models.PositiveIntegerField(default=0)


class LimitedGraph(StateGraph):
    """Work of which no more than three pieces may be done at a time, however many workers there are."""

    fresh = State(try_interval=0.2, backoff=0.2, concurrency=3)
    done = State()

    fresh.transitions_to(done)

    @classmethod
    async def handle_fresh(cls, instance):
        await work(instance)
        return cls.done


class Limited(StatorModel):
    state = StateField(LimitedGraph)
    seconds = models.FloatField(default=0.0)
    gate = models.CharField(max_length=300, blank=True)


class PulseGraph(StateGraph):
    """A handler that shows from outside of the database until when it is at work."""

    fresh = State(try_interval=0.2, backoff=0.2)
    done = State()

    fresh.transitions_to(done)

    @classmethod
    async def handle_fresh(cls, instance):
        await effect_of(instance).asave()
        beats, last = Path(instance.path), Path(f"{instance.path}.last")
        while not last.exists():
            beats.touch()
            await asyncio.sleep(GLANCE)
        return cls.done


class Pulse(StatorModel):
    state = StateField(PulseGraph)
    path = models.CharField(max_length=300)


class FailingGraph(StateGraph):
    """Objects that fail for as long as they are poisoned, and sound ones beside them."""

    fresh = State(try_interval=1)
    done = State()

    fresh.transitions_to(done)

    @classmethod
    async def handle_fresh(cls, instance):
        await effect_of(instance).asave()
        if instance.poisoned:
            raise ValueError("poisoned")
        return cls.done


class Failing(StatorModel):
    state = StateField(FailingGraph)
    poisoned = models.BooleanField(default=False)
