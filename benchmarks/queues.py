"""Tasks for programs: publishing in bulk, claiming and resolving by hundreds, and claims among very many that wait.

``python -m benchmarks.queues [--tasks 10000] [--waiting 1000000] [--claims 30] [--repeat 3]``
"""

import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.site")
os.environ.setdefault("LOG_LEVEL", "ERROR")

from benchmarks.harness import arguments, database, make_tables, print_table, spread
from benchmarks.report import Spent, Target, measure, print_targets, show, verdict, watch
from benchmarks.throughput import INSTANCES, plain_loop

BATCH = 100
PUBLISH, RESOLVE, EACH = "publish_many, 1,000 at a time", "claim + resolve_many, by 100s", "claim by 100s, resolve each"

# Fractions of the plain loop's rate; where that is 97,000/s they mean 20,000/s and 10,000/s.
TARGETS = {PUBLISH: (Target(0.2, of=INSTANCES),), RESOLVE: (Target(0.1, of=INSTANCES),)}


def main() -> None:
    """Measure and print."""
    quick = {"tasks": 300, "waiting": 2000, "claims": 2}
    options = arguments(__doc__, quick=quick, tasks=10_000, waiting=1_000_000, claims=30)
    with database():
        from django.core.management import call_command

        from benchmarks.models import AsyncItem

        call_command("migrate", verbosity=0)
        make_tables(AsyncItem)
        count = options.tasks
        cases: dict[str, tuple[int, Callable[[], Spent]]] = {
            INSTANCES: (count, lambda: plain_loop(AsyncItem, count, BATCH, instances=True)),
            PUBLISH: (count, lambda: spent(publish, count)),
            RESOLVE: (count, lambda: spent(work, count, before=publish)),
            # Each resolve takes several statements of its own.
            EACH: (count // 10, lambda: spent(work_one_by_one, count // 10, before=publish)),
        }
        measured = measure(cases, options.repeat)
        show(f"{count:,} tasks for programs; the loop in batches of {BATCH}", "tasks", measured, TARGETS)
        kinds = ["any", "with metadata that half have", "with metadata that 1,000 have"]
        sizes = [count, options.waiting]
        columns = [claims_among(size, options.claims) for size in sizes]
        rows = [[kind, *(spread(column[at], 1) for column in columns)] for at, kind in enumerate(kinds)]
        print_table(f"A claim of {BATCH}, ms, among tasks that wait", ["", *(f"{size:,}" for size in sizes)], rows)
        # The minimum: other load on the machine only ever makes a claim slower.
        among = f"among {sizes[1]:,} by that among {sizes[0]:,}"
        print_targets([
            verdict(f"claim {kind} {among}", min(large) / min(small), 1.5, most=True)
            for kind, small, large in zip(kinds, *columns, strict=True)
        ])  # fmt: skip


def spent(measured: Callable[[int], None], count: int, before: Callable[[int], None] | None = None) -> Spent:
    """Measure ``measured(count)``, after ``before(count)``, which is not measured."""
    clear()
    if before:
        before(count)
    with watch() as spent:
        measured(count)
    return spent


def queue() -> Any:
    """Return the benchmark's queue."""
    from tasks.models import Queue

    return Queue.objects.get_or_create(name="benchmark", defaults={"actions_elsewhere": True})[0]


def clear() -> None:
    """Empty the tables."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE tasks_task, tasks_run, stator_history CASCADE")


def publish(count: int) -> None:
    """Publish ``count`` tasks."""
    for start in range(0, count, 1000):
        queue().publish_many({"action": "nothing", "data": {"n": n}} for n in range(start, min(count, start + 1000)))


def work(count: int) -> None:
    """Claim and resolve all tasks in batches."""
    own = queue()
    done = 0
    while held := own.claim(worker="bench", limit=BATCH):
        assert not own.resolve_many(dict.fromkeys(held))
        done += len(held)
    assert done == count


def work_one_by_one(count: int) -> None:
    """Claim all tasks in batches, and resolve each by itself."""
    own = queue()
    while held := own.claim(worker="bench", limit=BATCH):
        for claim in held:
            claim.resolve()


def claims_among(waiting: int, claims: int) -> list[list[float]]:
    """Return the milliseconds of claims among ``waiting`` tasks: of any task, and with metadata."""
    from django.db import connection

    clear()
    own = queue()
    with connection.cursor() as cursor:
        own.publish("nothing", metadata={"half": 0, "few": 0})
        # Copies of the first task with other numbers, as publishing would write them, but in one statement.
        cursor.execute("SELECT column_name FROM information_schema.columns WHERE table_name = 'tasks_task'")
        names = [name for (name,) in cursor.fetchall() if name not in ("id", "metadata", "priority")]
        listed = ", ".join(f'"{name}"' for name in names)
        cursor.execute(
            f"INSERT INTO tasks_task ({listed}, metadata, priority)"
            f" SELECT {listed}, jsonb_build_object('half', n %% 2, 'few', n %% %s), priority + n"
            " FROM tasks_task, generate_series(1, %s) n",
            [max(1, waiting // 1000), waiting - 1],
        )
        cursor.execute("VACUUM ANALYZE tasks_task")
    # With few tasks, half of them may be less than a batch.
    batch = min(BATCH, waiting // 2)
    found = []
    for metadata in (None, {"half": 0}, {"few": 0}):
        times = []
        for number in range(claims):
            started = time.perf_counter()
            held = own.claim(worker=f"bench-{number}", limit=batch, metadata=metadata)
            times.append((time.perf_counter() - started) * 1000)
            if len(held) != batch:
                raise SystemExit(f"{len(held)} tasks were claimed instead of {batch}")
            put_back([claim.task.pk for claim in held])
        found.append(times)
    return found


def put_back(pks: list[int]) -> None:
    """Make tasks wait as if nobody had claimed them, so that each claim finds the same."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM tasks_run WHERE task_id = ANY(%s)", [pks])
        cursor.execute(
            "UPDATE tasks_task SET state_ready = true, state_claim = NULL, state_locked_until = NULL,"
            " state_attempted = NULL, state_attempts = 0 WHERE id = ANY(%s)",
            [pks],
        )


if __name__ == "__main__":
    main()
