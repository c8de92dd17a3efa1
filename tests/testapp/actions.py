"""Actions for tasks: each does one named thing. ``seen`` is what they were called with in this process."""

import asyncio
import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path
from threading import Event
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group
from django.utils import timezone, translation

import tasks
from stator.graph.backoff import Backoff
from tests.children import end_child
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


@tasks.action("flaky", local_retries=2, local_delay=0.001)
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


@tasks.action("child", isolated=True)
def child() -> None:
    """Fork a child and end it, in a process of its own."""
    end_child()


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


@tasks.action("twice", rate="2/h", key="channel")
def twice(channel: str = "", number: int = 0) -> None:
    """At most twice an hour for each channel."""
    seen.append(channel)


@tasks.action("single", concurrency=1, key=lambda task: task.data["door"])
async def single(door: str) -> str:
    """One at a time for each door."""
    return door


@tasks.action("alone", isolated=True, takes_context=True, timeout=60)
def alone(context: tasks.Context, do: str = "", path: str = "") -> Any:
    """In a process of its own."""
    if do == "crash":
        ctypes.string_at(0)
    if do == "raise":
        raise Odd("from afar")
    if do == "fail":
        raise tasks.Fail("never")
    if do == "later":
        raise tasks.TryAgainLater(7, "not yet")
    if do == "release":
        raise tasks.Release("not here")
    if do == "cancel":
        raise tasks.Cancel("not here")
    if do == "print":
        print("x" * 100_000)
    if do == "program":
        subprocess.run(["/bin/sh", "-c", "echo '{\"value\": 7}'; cat"], check=True, timeout=60)
    if do == "huge":
        return "x" * 1_000_000
    if do == "hang":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        Path(path).write_text(f"{os.getpid()} {child.pid}\n")
        Event().wait(600)
    if do == "wait":
        Path(path).write_text(f"{os.getpid()}\n")
        while not Path(f"{path}.go").exists():
            Event().wait(0.02)
    if do == "hold":
        Path(path).write_text(f"{os.getpid()}\n")
        # Called with the interpreter held, so that no other thread of the process gets on.
        ctypes.PyDLL(None).sleep(600)
    if do == "fork":
        # Holds the outputs of the process open when that has ended.
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        os._exit(0)
    return {
        "pid": os.getpid(),
        "attempt": context.attempt,
        "mine": context.still_mine(),
        "task": context.task.pk,
        "worker": context.worker,
    }


@tasks.action("alone-settings", isolated=True)
def alone_settings(names: list[str]) -> list[Any]:
    """Values of settings, in a process of its own."""
    return [getattr(settings, name) for name in names]


@tasks.action("alone-reads", isolated=True)
def alone_reads() -> list[str]:
    """What this process and a program that it starts read from standard input."""
    try:
        told = input()
    except EOFError as error:
        told = type(error).__name__
    return [sys.stdin.read(), told, subprocess.run(["cat"], capture_output=True, text=True, check=True).stdout]


@tasks.action("surroundings", isolated=True)
def surroundings() -> list[str | None]:
    """The language and the time zone, in a process of its own."""
    return [translation.get_language(), timezone.localtime().isoformat()[-6:], timezone.get_current_timezone_name()]


@tasks.action("alone-async", isolated=True)
async def alone_async(name: str) -> str:
    """A coroutine function that writes, in a process of its own."""
    await Group.objects.acreate(name=name)
    return name


@tasks.action("go-through")
def enter(door: str, number: int) -> None:
    """Go through a door for one."""
    go_through(door, number)
