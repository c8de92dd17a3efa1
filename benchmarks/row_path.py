"""The way of one row through the modules of ``stator``, from ``create()`` until its outcome is recorded.

``python -m benchmarks.row_path [--every]``: counts the modules that the row passes, and the hops: calls of a function
in another module of ours than that of the caller. What an idle worker calls as well, such as its polls, is left
out. On a busy machine the worker wakes more often for the same row, and the counts are higher.
"""

import sys
import threading
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from benchmarks.harness import arguments, database, make_tables, print_table

ROOT = f"{Path(__file__).parent.parent}/"
OURS = (f"{ROOT}stator/", f"{ROOT}tasks/")

# Rows that are not counted, because they create what is created only once: connections, texts of statements, prepared
# statements.
WARM_UP = 8

# Seconds for which an idle worker is observed, and for which a row that is recorded may cause more calls.
IDLE, SETTLED = 1.5, 0.3

# Calls that a worker makes by itself from time to time: they may occur with a row and not while the worker is idle.
APART = {
    "Heartbeat._work", "Listener._check", "Scheduler.look", "Watchdog._work", "Worker._mend_loop",
    "Worker._schedule_loop", "Worker._tick_loop", "perform", "send_scheduled",
}  # fmt: skip

# A function by its module and name; the functions of the library on a stack, the last one called.
Function = tuple[str, str]
Stack = tuple[Function, ...]

PAUSES = CO_COROUTINE | CO_GENERATOR | CO_ASYNC_GENERATOR
OUTSIDE = ("outside", "")


class Follower:
    """Notes the calls of the library's functions, in this thread and in threads that it starts meanwhile."""

    def __init__(self) -> None:
        self.calls: list[Stack] = []
        self._known: dict[CodeType, Function | None] = {}

    @contextmanager
    def following(self) -> Iterator[None]:
        """Note the calls in a block."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event != "call" or not self._function(code):
            return
        # A coroutine that goes on after a pause is not called anew.
        if code.co_flags & PAUSES and frame.f_lineno != code.co_firstlineno:
            return
        self.calls.append(tuple(self._stack(frame))[::-1])

    def _stack(self, frame: FrameType | None) -> Iterator[Function]:
        while frame:
            if function := self._function(frame.f_code):
                yield function
            frame = frame.f_back

    def _function(self, code: CodeType) -> Function | None:
        if code not in self._known:
            path, name = code.co_filename, code.co_name
            module = path.removeprefix(ROOT).removesuffix(".py").replace("/", ".")
            # Comprehensions belong to the function around them.
            ours = path.startswith(OURS) and (not name.startswith("<") or name == "<lambda>")
            self._known[code] = (module, code.co_qualname) if ours else None
        return self._known[code]


def follow(model: Any) -> list[Stack]:
    """Return the calls that one row of a model causes, in this process and its worker, in their order."""
    from stator.runner import StatorRunner

    follower = Follower()
    with follower.following(), _in_thread(StatorRunner([model], heed_signals=False).worker()):
        for _ in range(WARM_UP):
            _attempt_one(model)
        follower.calls.clear()
        time.sleep(IDLE)
        idle = set(follower.calls)
        follower.calls.clear()
        _attempt_one(model)
        calls = list(follower.calls)
    return [stack for stack in calls if stack not in idle and not any(name in APART for _, name in stack)]


@contextmanager
def _in_thread(worker: Any) -> Iterator[None]:
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        yield
    finally:
        worker._loop.call_soon_threadsafe(worker.stop)
        thread.join(30)


def _attempt_one(model: Any) -> None:
    """Create a row, and wait until it is recorded and its worker is idle again."""
    from django.db import connection

    row = model.objects.create()
    deadline = time.monotonic() + 30
    # This bypasses the ORM, whose hooks would be counted.
    with connection.cursor() as cursor:
        state = ""
        while state != "done":
            if time.monotonic() > deadline:
                raise SystemExit("the worker did not move the row within 30 s")
            time.sleep(0.02)
            cursor.execute(f"SELECT state FROM {model._meta.db_table} WHERE id = %s", [row.pk])
            [state] = cursor.fetchone()
    time.sleep(SETTLED)


def modules_of(calls: list[Stack]) -> Counter[str]:
    """Return the modules with the number of calls in each."""
    return Counter(stack[-1][0] for stack in calls)


def hops_of(calls: list[Stack]) -> Counter[tuple[Function, Function]]:
    """Return the calls of a function in another module than the caller's."""
    pairs = ((stack[-2] if len(stack) > 1 else OUTSIDE, stack[-1]) for stack in calls)
    return Counter((caller, called) for caller, called in pairs if caller[0] != called[0])


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, {}, _extend)
    with database():
        from benchmarks.models import AsyncItem

        make_tables(AsyncItem)
        calls = follow(AsyncItem)
        modules, hops = modules_of(calls), hops_of(calls)
        title = f"One row from create to recorded: {len(modules)} modules, {hops.total()} hops"
        print_table(title, ["module", "calls"], [[name, str(count)] for name, count in modules.most_common()])
        if options.every:
            print_table(
                "Hops",
                ["times", "from", "to"],
                [[str(count), ".".join(caller), ".".join(called)] for (caller, called), count in hops.most_common()],
            )


def _extend(parser: ArgumentParser) -> None:
    parser.add_argument("--every", action="store_true", help="print every hop, too")


if __name__ == "__main__":
    main()
