"""Actions for tasks: each does one named thing. ``seen`` is what they were called with in this process."""

import asyncio
import os
import time
from pathlib import Path
from threading import Event
from typing import Any

from django.contrib.auth.models import Group

import tasks
from stator.graph.backoff import Backoff
from tests.testapp.door import go_through

seen: list[Any] = []
release = Event()


class Odd(Exception):
    """Raised by actions that go wrong."""


@tasks.action("resize", backoff=30)
def resize(image: int, width: int = 100) -> dict[str, int]:
    """Sync, with keyword arguments."""
    seen.append((image, width))
    return {"image": image, "width": width}


@tasks.action("fetch")
async def fetch(url: str) -> tuple[str, int]:
    """Async, and what it returns is a tuple."""
    await asyncio.sleep(0)
    return url, len(url)


@tasks.action("echo")
def echo(*arguments: Any) -> list[Any]:
    """Return the arguments: one, or none."""
    return list(arguments)


@tasks.action("told", takes_context=True)
def told(context: tasks.Context, **data: Any) -> dict[str, Any]:
    """Return the values of the context."""
    return {
        "task": context.task.pk, "attempt": context.attempt, "worker": context.worker, "mine": context.still_mine(),
        "extended": context.extend(30), "stopped": context.stopped.is_set(), "data": data,
    }  # fmt: skip


@tasks.action("only-here", queue="special")
def only_here() -> str:
    """An action of one queue alone."""
    return "here"


@tasks.action("break", backoff=Backoff(base=40.0, factor=1.0), max_attempts=3)
def go_wrong(message: str = "no") -> None:
    """Raise an error."""
    seen.append("break")
    raise Odd(message)


@tasks.action("give-up")
async def give_up() -> None:
    """Fail for good."""
    raise tasks.Fail("there is no such thing")


@tasks.action("later", max_attempts=2)
async def later() -> None:
    """Not yet."""
    raise tasks.TryAgainLater(5, "not ripe")


@tasks.action("unstorable")
def unstorable() -> object:
    """Return what is no JSON."""
    return object()


# Not again before a slow machine is idle.
@tasks.action("flaky", local_retries=2, local_delay=0.001, backoff=600)
def flaky(times: int) -> int:
    """Fail so many times in this process."""
    seen.append("flaky")
    if len(seen) <= times:
        raise Odd(f"time {len(seen)}")
    return len(seen)


@tasks.action("slow", timeout=0.1)
async def slow() -> None:
    """Longer than its timeout."""
    await asyncio.sleep(60)


@tasks.action("deaf")
async def deaf(seconds: float) -> None:
    """Hold the event loop."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


@tasks.action("wait", takes_context=True)
def wait(context: tasks.Context) -> str:
    """Block a thread until the attempt is over, or the test says so."""
    while not context.stopped.wait(0.02):
        if release.is_set():
            return "released"
    seen.append("stopped")
    return "stopped"


@tasks.action("thread", takes_context=True)
def thread(context: tasks.Context) -> None:
    """Block a thread whatever it is told."""
    seen.append("begun")
    release.wait(30)
    seen.append("ended")


@tasks.action("nap", takes_context=True)
def nap(context: tasks.Context, path: str, seconds: float = 0.0, *, ends: bool = False) -> None:
    """Write down that it has begun, then block a thread, or end the process."""
    note_begin(context, path)
    if ends:
        os._exit(3)
    Event().wait(seconds)


@tasks.action("doze", takes_context=True)
async def doze(context: tasks.Context, path: str, seconds: float = 0.0, *, ends: bool = False) -> None:
    """The same on the event loop."""
    note_begin(context, path)
    if ends:
        os._exit(3)
    await asyncio.sleep(seconds)


def note_begin(context: tasks.Context, path: str) -> None:
    """Append the task and its worker to a file, which a killed process leaves as it was."""
    with Path(path).open("a") as file:
        file.write(f"{context.task.pk} {context.worker}\n")


@tasks.action("hang")
def hang() -> None:
    """Never return."""
    Event().wait()


@tasks.action("write")
def write(name: str) -> None:
    """Write a row."""
    Group.objects.create(name=name)


@tasks.action("go-through")
def enter(door: str, number: int) -> None:
    """Go through a door for one."""
    go_through(door, number)


from tests.testapp import (  # noqa: E402
    isolated,  # noqa: F401 - tasks.extensions.isolation
    throttled,  # noqa: F401 - tasks.extensions.throttles
)
