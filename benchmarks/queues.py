"""Tasks for programs: publishing in bulk, claiming and resolving by hundreds, and claims among very many that wait.

``python -m benchmarks.queues [--tasks 10000] [--repeat 3] [--waiting 1000000]``
"""

import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
os.environ.setdefault("LOG_LEVEL", "ERROR")

from benchmarks.harness import arguments, database, print_table, spread

BATCH = 100

# Claims of one batch that are timed at each size.
CLAIMS = 30


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, tasks=10_000, waiting=1_000_000)
    with database():
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        lines = [
            ["publish_many, 1,000 at a time", rates(options, publish)],
            [f"claim + resolve_many, {BATCH} at a time", rates(options, work, before=publish)],
            [f"claim, {BATCH} at a time, + resolve each", rates(options, work_one_by_one, before=publish)],
        ]
        print_table(f"{options.tasks:,} tasks", ["", "tasks/s"], lines)
        sizes = [options.tasks, options.waiting]
        kinds = ["any", "with metadata that half have", "with metadata that 1 of 1,000 has"]
        columns = [claims_among(size) for size in sizes]
        rows = [[kind, *(column[number] for column in columns)] for number, kind in enumerate(kinds)]
        print_table(f"a claim of {BATCH}, ms, among tasks that wait", ["", *(f"{size:,}" for size in sizes)], rows)


def rates(options: Any, measured: Callable[[int], None], before: Callable[[int], None] | None = None) -> str:
    """Tasks per second, over the repetitions."""
    found = []
    for _ in range(options.repeat):
        clear()
        if before:
            before(options.tasks)
        started = time.perf_counter()
        measured(options.tasks)
        found.append(options.tasks / (time.perf_counter() - started))
    return spread(found)


def queue() -> Any:
    """The queue of the benchmark."""
    from tasks.models import Queue

    return Queue.objects.get_or_create(name="benchmark")[0]


def clear() -> None:
    """Empty the tables."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE tasks_task, tasks_run, stator_history CASCADE")


def publish(count: int) -> None:
    """Publish so many."""
    for start in range(0, count, 1000):
        queue().publish_many({"action": "nothing", "data": {"n": n}} for n in range(start, min(count, start + 1000)))


def work(count: int) -> None:
    """Claim and resolve all, by batches."""
    own = queue()
    done = 0
    while held := own.claim(worker="bench", limit=BATCH):
        assert not own.resolve_many(dict.fromkeys(held))
        done += len(held)
    assert done == count


def work_one_by_one(count: int) -> None:
    """Claim all by batches, resolve each by itself."""
    own = queue()
    while held := own.claim(worker="bench", limit=BATCH):
        for claim in held:
            claim.resolve()


def claims_among(waiting: int) -> list[str]:
    """Milliseconds of a claim among so many, of any and with metadata."""
    from django.db import connection

    clear()
    own = queue()
    with connection.cursor() as cursor:
        own.publish("nothing", metadata={"half": 0, "few": 0})
        # As publishing writes them, by one statement: a copy of the first with other numbers.
        cursor.execute("SELECT column_name FROM information_schema.columns WHERE table_name = 'tasks_task'")
        names = [name for (name,) in cursor.fetchall() if name not in ("id", "metadata", "priority")]
        listed = ", ".join(f'"{name}"' for name in names)
        cursor.execute(
            f"INSERT INTO tasks_task ({listed}, metadata, priority)"
            f" SELECT {listed}, jsonb_build_object('half', n %% 2, 'few', n %% 1000), priority + n"
            " FROM tasks_task, generate_series(1, %s) n",
            [waiting - 1],
        )
        cursor.execute("VACUUM ANALYZE tasks_task")
    found = []
    for metadata in (None, {"half": 1}, {"few": 7}):
        times = []
        for number in range(CLAIMS):
            started = time.perf_counter()
            held = own.claim(worker=f"bench-{number}", limit=BATCH, metadata=metadata)
            times.append((time.perf_counter() - started) * 1000)
            for claim in held[:1]:
                claim.verify()
        found.append(spread(times))
    return found


if __name__ == "__main__":
    main()
