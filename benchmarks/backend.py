"""Django's Tasks framework on this backend: how fast tasks are enqueued, and how fast one worker process runs them.

``python -m benchmarks.backend [--tasks 2000] [--repeat 3]``
"""

import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
os.environ.setdefault("LOG_LEVEL", "ERROR")

from benchmarks.harness import arguments, database, print_table, spread


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, tasks=2000)
    with database():
        from django.core.management import call_command
        from django.db import transaction

        from benchmarks.functions import add, add_in_thread, nothing

        call_command("migrate", verbosity=0)
        add.enqueue(1, 2)
        drain()

        def one_by_one() -> None:
            for _ in range(options.tasks):
                nothing.enqueue()

        def in_a_transaction() -> None:
            with transaction.atomic():
                one_by_one()

        lines = [
            ["enqueue, a commit each", rate(options, one_by_one, drain)],
            ["enqueue, one commit for all", rate(options, in_a_transaction, drain)],
            ["run, async, no result", rate(options, drain, before=lambda: enqueue(nothing, options.tasks))],
            ["run, async, with a result", rate(options, drain, before=lambda: enqueue(add, options.tasks, 1, 2))],
            [
                "run, in threads, with a result",
                rate(options, drain, before=lambda: enqueue(add_in_thread, options.tasks, 1, 2)),
            ],
        ]
        print_table(f"{options.tasks:,} tasks of Django's framework", ["", "tasks/s"], lines)


def rate(
    options: Any,
    measured: Callable[[], None],
    after: Callable[[], None] | None = None,
    before: Callable[[], None] | None = None,
) -> str:
    """Tasks per second, over the repetitions."""
    rates = []
    for _ in range(options.repeat):
        if before:
            before()
        started = time.perf_counter()
        measured()
        rates.append(options.tasks / (time.perf_counter() - started))
        if after:
            after()
    return spread(rates)


def enqueue(task: Any, count: int, *arguments: Any) -> None:
    """Enqueue in one transaction."""
    from django.db import transaction

    with transaction.atomic():
        for _ in range(count):
            task.enqueue(*arguments)


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
