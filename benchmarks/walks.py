"""The ways of single acts through the modules: modules and hops of each, and the statements it sends.

``python -m benchmarks.walks``: acts of programs and people on one row, in one thread, after a few of the same. A hop
is a call of a function in another module of ours than that of the caller. Then the way of one row through a worker
(``benchmarks.row_path`` lists it), the calls of Python functions for each row and each task of a drain, which hardly
depend on the processor, and the slots of a claim. Calls of heartbeats are left out.
"""

import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.site")
os.environ.setdefault("LOG_LEVEL", "ERROR")

from benchmarks.harness import arguments, database, fill, print_table
from benchmarks.row_path import Follower, follow, hops_of, modules_of

# The same act before the one that is counted: it compiles statements and opens connections.
WARM_UP = 3

Act = Callable[[], object]


def walk(prepare: Callable[[], Act]) -> tuple[int, int, int]:
    """Return the modules, hops and statements of an act; ``prepare`` returns the next one to do."""
    for _ in range(WARM_UP):
        prepare()()
    from tests.statements import sent

    act, follower = prepare(), Follower()
    with sent() as statements, follower.following():
        act()
    calls = follower.calls
    return len(modules_of(calls)), hops_of(calls).total(), len(statements)


def calls_per_row(model: Any, rows: int) -> float:
    """Return the calls of Python functions for each further row of a drain, in all threads of a worker."""
    from stator.runner import StatorRunner

    drain = StatorRunner([model], until_idle=True, heed_signals=False).run
    return _calls_per_row(lambda count: fill(model, count), drain, rows)


def calls_per_task(task: Any, tasks: int, *parameters: object) -> float:
    """Return the same of each further task of Django's framework."""
    from benchmarks.backend import enqueue_many
    from stator.runner import StatorRunner
    from tasks.models import Task

    drain = StatorRunner([Task], until_idle=True, heed_signals=False).run
    return _calls_per_row(lambda count: enqueue_many(task, count, *parameters), drain, tasks)


def _calls_per_row(make: Callable[[int], object], drain: Callable[[], object], rows: int) -> float:
    found = []
    # The first drain imports modules and compiles statements.
    for count in (WARM_UP, rows, 2 * rows):
        make(count)
        found.append(_calls(drain))
    return (found[2] - found[1]) / rows


def _calls(drain: Callable[[], object]) -> int:
    from stator.worker.heartbeat import Heartbeat

    # List items, because threads count at once and a sum of two could lose one.
    calls: list[None] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        if frame.f_code is Heartbeat._work.__code__:
            # How often it looks at a claim depends on the time.
            sys.setprofile(None)
        elif event == "call":
            calls.append(None)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        drain()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return len(calls)


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, {"rows": 500}, rows=5000)
    with database():
        from django.core.management import call_command

        from benchmarks.harness import make_tables
        from benchmarks.models import AsyncItem, AwaitingItem, PageItem, SyncItem
        from stator.db.interface import Claim

        call_command("migrate", verbosity=0)
        from benchmarks.functions import add, add_in_thread, nothing

        make_tables(PageItem, AwaitingItem, AsyncItem, SyncItem)
        lines = [[name, *map(str, walk(prepare))] for name, prepare in _acts(PageItem, AwaitingItem).items()]
        print_table("Acts on one row", ["act", "modules", "hops", "statements"], lines)
        path = follow(AsyncItem)
        lines = [
            ["modules from create to recorded", str(len(modules_of(path)))],
            ["hops from create to recorded", str(hops_of(path).total())],
            *(
                [f"calls for each row, {name} drain", f"{calls_per_row(model, options.rows):.1f}"]
                for name, model in {"async": AsyncItem, "sync": SyncItem}.items()
            ),
            *(
                [f"calls for each task, {name}", f"{calls_per_task(task, options.rows, *parameters):.1f}"]
                for name, (task, *parameters) in {
                    "async, no result": (nothing,),
                    "async, with a result": (add, 1, 2),
                    "in threads, with a result": (add_in_thread, 1, 2),
                }.items()
            ),
            ["slots of a claim", str(len(Claim.__slots__))],
        ]
        print_table("A row in a worker", ["what", "number"], lines)


def _acts(model: Any, awaiting: Any) -> dict[str, Callable[[], Act]]:
    from stator.runner import StatorRunner
    from tasks.models import Batch, Queue

    queue = Queue.objects.create(name="walks", actions_elsewhere=True)

    def claimed(**options: Any) -> Any:
        queue.publish("walk", {"n": 1}, **options)
        [claim] = queue.claim(worker="bot-1")
        return claim

    def ending() -> Act:
        claimed(batch=Batch(on_done="walk")).resolve(1)
        return StatorRunner([Batch]).run_single_cycle

    def waiting() -> Act:
        queue.publish("walk", {"n": 1})
        return partial(queue.claim, worker="bot-1")

    return {
        "task: publish": lambda: partial(queue.publish, "walk", {"n": 1}),
        "task: claim": waiting,
        "task: heartbeat": lambda: claimed().heartbeat,
        "task: resolve": lambda: partial(claimed().resolve, {"ok": 1}),
        "one task in a new batch": lambda: partial(queue.publish, "walk", {"n": 1}, batch=Batch(on_done="walk")),
        "a batch ends": ending,
        "create": lambda: model.objects.create,
        "retry by an operator": lambda: partial(
            model.stator.filter(pk=model.objects.create().pk).retry, actor="an operator"
        ),
        "explain": lambda: model.objects.create().explain,
        "event that moves": lambda: partial(awaiting.objects.create().stator.send, "approve"),
    }


if __name__ == "__main__":
    main()
