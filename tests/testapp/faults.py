"""Models that the fault tests harm, and the log in which each change of their rows is kept."""

import asyncio
import ctypes
import os
import re
import threading
import time
from pathlib import Path
from typing import Any

from django.db import connection, models, transaction
from django.db.models.functions import Now

from stator.graph import State, StateGraph
from stator.models import StateField, StatorModel
from tests.children import end_child
from tests.testapp.actor import actor

GLANCE = 0.02
MEGABYTES_16 = 16 * 1024 * 1024


class Event(models.Model):
    """One change of one row, written by a trigger: it is there if and only if the change was committed."""

    label = models.CharField(max_length=100)
    object_pk = models.CharField(max_length=100)
    at = models.DateTimeField()
    actor = models.CharField(max_length=100)
    old = models.JSONField(null=True)
    new = models.JSONField(null=True)


class Effect(models.Model):
    """The effects of handlers on the outside world: one row for each start of a handler."""

    label = models.CharField(max_length=100)
    object_pk = models.CharField(max_length=100)
    version = models.BigIntegerField()
    state = models.CharField(max_length=100)
    claim = models.UUIDField()
    at = models.DateTimeField(db_default=Now())
    actor = models.CharField(max_length=100)
    note = models.CharField(max_length=200, blank=True)


def effect_of(instance: Any, note: str = "") -> Effect:
    """The effect of the attempt that is being made, not yet saved."""
    claim = instance.stator
    return Effect(
        label=claim.operations.label, object_pk=str(claim.pk), version=claim.version, state=claim.state.name,
        claim=claim.token, actor=actor(), note=note,
    )  # fmt: skip


async def work(instance: Any) -> None:
    """Leave an effect, take as long as the object says, and wait for its gate to be opened."""
    await effect_of(instance).asave()
    await asyncio.sleep(instance.seconds)
    while instance.gate and not Path(instance.gate).exists():
        await asyncio.sleep(GLANCE)


def work_in_thread(instance: Any) -> None:
    """:func:`work` in a thread."""
    effect_of(instance).save()
    clock = threading.Event()
    clock.wait(instance.seconds)
    while instance.gate and not Path(instance.gate).exists():
        clock.wait(GLANCE)


class JobGraph(StateGraph):
    """Two steps of work on the event loop."""

    fresh = State(try_interval=0.2, backoff=0.2)
    halfway = State(try_interval=0.2, backoff=0.2)
    done = State()

    fresh.transitions_to(halfway)
    halfway.transitions_to(done)

    @classmethod
    async def handle_fresh(cls, instance):
        await work(instance)
        return cls.halfway

    @classmethod
    async def handle_halfway(cls, instance):
        await work(instance)
        return cls.done


class ThreadJobGraph(StateGraph):
    """Two steps of work in threads."""

    fresh = State(try_interval=0.2, backoff=0.2)
    halfway = State(try_interval=0.2, backoff=0.2)
    done = State()

    fresh.transitions_to(halfway)
    halfway.transitions_to(done)

    @classmethod
    def handle_fresh(cls, instance):
        work_in_thread(instance)
        return cls.halfway

    @classmethod
    def handle_halfway(cls, instance):
        work_in_thread(instance)
        return cls.done


class Job(StatorModel):
    state = StateField(JobGraph)
    seconds = models.FloatField(default=0.0)
    gate = models.CharField(max_length=300, blank=True)
    note = models.CharField(max_length=100, blank=True)


class JobLine(models.Model):
    """A child row of a job: inserting one locks the job against changes of its key."""

    job = models.ForeignKey(Job, models.CASCADE)


class ThreadJob(StatorModel):
    state = StateField(ThreadJobGraph)
    seconds = models.FloatField(default=0.0)
    gate = models.CharField(max_length=300, blank=True)


class BombGraph(StateGraph):
    """Handlers that take their process along or hold it for ever, in threads and on the loop; and harmless ones."""

    fresh = State(try_interval=60)
    on_loop = State(try_interval=60)
    done = State()

    fresh.transitions_to(on_loop)
    fresh.transitions_to(done)
    on_loop.transitions_to(done)

    @classmethod
    def handle_fresh(cls, instance):
        effect_of(instance, instance.kind).save()
        if instance.kind in LOOP_BOMBS or instance.kind == "child on loop":
            return cls.on_loop
        BOMBS[instance.kind]()
        return cls.done

    @classmethod
    async def handle_on_loop(cls, instance):
        await effect_of(instance, instance.kind).asave()
        {**LOOP_BOMBS, "child on loop": end_child}[instance.kind]()
        return cls.done


def spin() -> None:
    """Keep a processor busy for ever, and let go of the interpreter only when told to."""
    while True:
        pass


def lock_twice() -> None:
    """Wait for ever, with the interpreter free for others."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def hog() -> None:
    """Take memory until there is none; no more than a gigabyte where nobody sets a limit."""
    taken = [b"x" * MEGABYTES_16 for _ in range(64)]
    del taken


BOMBS = {
    "exit": lambda: os._exit(3),
    "exit well": lambda: os._exit(0),
    "child": end_child,
    "segfault": lambda: ctypes.string_at(0),
    "abort": os.abort,
    "harmless": lambda: threading.Event().wait(0.2),
    "spin": spin,
    "deadlock": lock_twice,
    "hog": hog,
    # C code that holds the interpreter, and takes for ever.
    "regex": lambda: re.match(r"(a+)+$", "a" * 60 + "b"),
}

LOOP_BOMBS = {
    "spin on loop": spin,
    "sleep on loop": lambda: time.sleep(600),
    # A C function that is called without letting go of the interpreter.
    "hold interpreter": lambda: ctypes.PyDLL(None).sleep(600),
}


class Bomb(StatorModel):
    state = StateField(BombGraph)
    kind = models.CharField(max_length=20)


class StubbornGraph(StateGraph):
    """A handler that does not let itself be cancelled, and writes when it comes to an end at last."""

    fresh = State(try_interval=60, backoff=60, max_runtime=0.5)
    done = State()

    fresh.transitions_to(done)

    @classmethod
    async def handle_fresh(cls, instance):
        await effect_of(instance).asave()
        while not Path(instance.gate).exists():
            try:
                await asyncio.sleep(GLANCE)
            except asyncio.CancelledError:
                continue
        instance.note = "late"
        try:
            await instance.asave()
        except BaseException as error:
            Path(instance.gate).write_text(type(error).__name__)
            raise
        return cls.done


class Stubborn(StatorModel):
    state = StateField(StubbornGraph)
    gate = models.CharField(max_length=300)
    note = models.CharField(max_length=100, blank=True)


class MessyGraph(StateGraph):
    """Handlers that leave their database connection in disorder, and one that looks at what it finds."""

    fresh = State(try_interval=60, backoff=60)
    done = State()

    fresh.transitions_to(done)

    @classmethod
    def handle_fresh(cls, instance):
        MESSES[instance.kind](instance)
        return cls.done


def look_around(instance: Any) -> None:
    """Leave an effect that says in which state the connection was found."""
    found = [f"atomic={connection.in_atomic_block}", f"autocommit={connection.get_autocommit()}"]
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SHOW search_path")
            found.append(f"search_path={cursor.fetchone()[0]}")
    effect_of(instance, " ".join(found)).save()


def leave_open(instance: Any) -> None:
    """Begin a transaction and not end it."""
    transaction.atomic().__enter__()
    effect_of(instance, "never committed").save()


def leave_broken(instance: Any) -> None:
    """Break a transaction and not end it."""
    transaction.atomic().__enter__()
    connection.cursor().execute("SELECT no_such_column")


def leave_behind_the_back(instance: Any) -> None:
    """Begin a transaction without Django knowing."""
    connection.cursor().execute("BEGIN")
    effect_of(instance, "never committed").save()


def leave_autocommit_off(instance: Any) -> None:
    """Switch autocommit off and write."""
    connection.set_autocommit(False)
    effect_of(instance, "never committed").save()


def change_session(instance: Any) -> None:
    """Point the session at other tables."""
    connection.cursor().execute("SET search_path TO pg_catalog")


def change_session_behind_the_back(instance: Any) -> None:
    """The same by another statement."""
    connection.cursor().execute("SELECT pg_catalog.set_config('search_path', 'pg_catalog', false)")


def close_connection(instance: Any) -> None:
    """Close the connection that Django believes to be open."""
    connection.ensure_connection()
    connection.connection.close()


MESSES = {
    "look": look_around,
    "open": leave_open,
    "broken": leave_broken,
    "behind": leave_behind_the_back,
    "autocommit": leave_autocommit_off,
    "session": change_session,
    "session_behind": change_session_behind_the_back,
    "closed": close_connection,
}


class Messy(StatorModel):
    state = StateField(MessyGraph)
    kind = models.CharField(max_length=20)


class FadingGraph(StateGraph):
    """Objects that are deleted after a second in a state in which a handler may be at work for longer."""

    fresh = State(try_interval=60, delete_after=1)
    done = State(delete_after=1)

    fresh.transitions_to(done)

    @classmethod
    async def handle_fresh(cls, instance):
        await work(instance)


class Fading(StatorModel):
    state = StateField(FadingGraph)
    seconds = models.FloatField(default=0.0)
    gate = models.CharField(max_length=300, blank=True)
