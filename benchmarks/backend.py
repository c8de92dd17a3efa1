"""Django's Tasks framework on this backend: how fast tasks are enqueued, and how fast one worker process runs them.

``python -m benchmarks.backend [--tasks 2000] [--repeat 3] [--alone]``

Compared with django-tasks-db, which is installed into var/peers if it is missing; ``--alone`` leaves it out.
"""

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.site")
os.environ.setdefault("LOG_LEVEL", "ERROR")

from benchmarks.harness import arguments, database
from benchmarks.peers.catalog import PEERS
from benchmarks.peers.install import Unavailable
from benchmarks.peers.run import Failed, Told
from benchmarks.peers.run import run as run_peer
from benchmarks.report import Run, Spent, Target, once, show, watch

ONE_BY_ONE, ONE_COMMIT = "enqueue, a commit each", "enqueue, one commit for all"
MANY = "enqueue_many"
ASYNC, RESULT, THREADS = "run, async, no result", "run, async, with a result", "run, in threads, with a result"
PEER_ENQUEUE, PEER_RUN = "django-tasks-db, enqueue, a commit each", "django-tasks-db, run"

TARGETS = {
    ONE_BY_ONE: (Target(1, of=PEER_ENQUEUE),),
    MANY: (Target(25_000),),
    ASYNC: (Target(10_000), Target(20, of=PEER_RUN)),
}


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, quick={"tasks": 100}, extend=_alone, tasks=2000)
    # The worker runs more tasks than the peer. Otherwise it would be done before it reaches its full speed.
    count, many = options.tasks, 5 * options.tasks
    with database():
        from django.core.management import call_command

        from benchmarks.functions import add, add_in_thread, nothing

        call_command("migrate", verbosity=0)
        add.enqueue(1, 2)
        drain()
        cases: dict[str, tuple[int, Callable[[], Spent]]] = {
            ONE_BY_ONE: (count, lambda: enqueued(count)),
            ONE_COMMIT: (count, lambda: enqueued(count, enqueue)),
            # A call enqueues thousands in a tenth of a second, too short a time for one measurement.
            MANY: (many, lambda: enqueued(many, enqueue_many)),
            ASYNC: (many, lambda: ran(nothing, many)),
            RESULT: (many, lambda: ran(add, many, 1, 2)),
            THREADS: (many, lambda: ran(add_in_thread, many, 1, 2)),
        }
        measured: dict[str, list[Run]] = {name: [] for name in cases}
        beside = not options.alone
        for _ in range(options.repeat):
            for name, case in cases.items():
                measured[name].append(once(*case))
            beside = beside and _add_peer(measured, count)
        show(f"{count:,} of Django's tasks are enqueued, {many:,} at once and run", "tasks", measured, TARGETS)


def _alone(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--alone", action="store_true", help="without django-tasks-db")


def _add_peer(measured: dict[str, list[Run]], count: int) -> bool:
    """Add a run of django-tasks-db; if it cannot be run, print why and return False."""
    peer = next(peer for peer in PEERS if peer.name == "django-tasks-db")
    try:
        told: Told = run_peer(peer, peer.cases[0], count)
    except (Unavailable, Failed) as error:
        print(f"django-tasks-db is left out: {error}", file=sys.stderr)
        return False
    measured.setdefault(PEER_ENQUEUE, []).append(Run(told.enqueued, 0, 0))
    measured.setdefault(PEER_RUN, []).append(once(count, lambda: told.spent))
    return True


def enqueued(count: int, together: Callable[[Any, int], None] | None = None) -> Spent:
    """Enqueue ``count`` tasks, with a commit for each or by ``together``."""
    from benchmarks.functions import nothing

    with watch() as spent:
        if together:
            together(nothing, count)
        else:
            for _ in range(count):
                nothing.enqueue()
    drain()
    return spent


def ran(task: Any, count: int, *parameters: Any) -> Spent:
    """Measure a worker from its start until it has run ``count`` tasks."""
    enqueue_many(task, count, *parameters)
    with watch() as spent:
        drain()
    return spent


def enqueue(task: Any, count: int, *parameters: Any) -> None:
    """Enqueue in one transaction."""
    from django.db import transaction

    with transaction.atomic():
        for _ in range(count):
            task.enqueue(*parameters)


def enqueue_many(task: Any, count: int, *parameters: Any) -> None:
    """Enqueue in one call, or in as few calls as the limit allows."""
    from tasks.conf import load_settings

    most = load_settings().PUBLISH_LIMIT
    for start in range(0, count, most):
        task.get_backend().enqueue_many(task, [(parameters, {})] * min(most, count - start))


def drain() -> None:
    """Run a worker until nothing is left."""
    from stator.runner import StatorRunner
    from tasks.models import Task

    StatorRunner([Task], until_idle=True).run()
    left = Task.objects.exclude(state="completed").count()
    if left:
        raise SystemExit(f"{left} tasks did not complete")


if __name__ == "__main__":
    main()
