"""Actions that run in processes of their own."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from threading import Event
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group
from django.utils import timezone, translation

import tasks
from tests.children import end_child
from tests.testapp.actions import Odd
from tests.testapp.tasks import task


@tasks.action("child", isolated=True)
def child() -> None:
    """Fork a child and end it, in a process of its own."""
    end_child()


@tasks.action("alone", isolated=True, takes_context=True, timeout=60)
def alone(context: tasks.Context, do: str = "", path: str = "") -> Any:
    """In a process of its own."""
    if do == "crash":
        ctypes.string_at(0)
    if do == "raise":
        raise Odd("from afar")
    if do == "release":
        raise tasks.Release("not here")
    if do == "print":
        print("x" * 100_000)
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


@task(backend="isolated")
def process_id() -> int:
    """In a process of its own."""
    return os.getpid()
