"""Workers killed at any moment around an atomic handler (F1): its effects and its move are both there, or neither."""

import random
from collections import Counter
from threading import Event

import pytest
from django.db import connection
from django.db.models import F

from tests.faults.events import Kind
from tests.testapp.harmed import Booking

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

# So many objects at least are not done when a worker is killed.
BUSY = 60


def kill_at_any_moment(workers):
    """Kill the oldest worker once it has come to work, and start another in its place."""
    name = next(iter(workers.alive))
    workers.until(lambda: keep_busy() or workers.starts(workers.alive[name]).exists())
    Event().wait(random.uniform(0.0, 0.4))
    workers.kill(name)
    workers.start()


def keep_busy():
    """Have enough to do, however long a worker takes to start."""
    missing = BUSY - Booking.objects.exclude(state="done").count()
    Booking.objects.bulk_create(Booking(seconds=random.uniform(0.0, 0.15)) for _ in range(missing))


def moves(history):
    """How often each (object, version) was moved on from."""
    return Counter((event.pk, event.old.version) for event in history.of(Kind.MOVE))


def effects(history):
    return Counter((effect.pk, effect.version) for effect in history.effects)


def test_effects_and_move_of_a_killed_worker_are_both_there_or_both_not(watch, fleet, thorough):
    kills, workers_at_once = (200, 4) if thorough else (3, 3)
    if connection.vendor == "sqlite":
        # One transaction at a time, each as long as its handler.
        kills, workers_at_once = max(kills // 4, 2), 2
    watched = watch(Booking)
    workers = fleet("testapp.Booking", STATOR_THREADS=3, STATOR_MAX_CRASHES=1000)
    for _ in range(workers_at_once):
        workers.start()

    for _ in range(kills):
        kill_at_any_moment(workers)
    workers.finish(Booking, timeout=240)

    history = watched.history(Booking)
    reaped = history.kinds().count(Kind.REAP)
    print(f"{kills} kills ended {reaped} claims; {sum(moves(history).values())} moves")
    assert reaped > kills / 2
    assert effects(history) == moves(history)
    assert set(moves(history).values()) == {1}
    assert not Booking.objects.exclude(booked=F("state_version")).exists()
    watched.judge(max_crashes=1000)
