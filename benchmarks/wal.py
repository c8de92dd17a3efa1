"""What one job writes to PostgreSQL's write-ahead log: bytes and records, by ``pg_stat_wal``.

``python -m benchmarks.wal [--jobs 5000]``: a worker drains moves, moves with history, and tasks of Django's framework;
named workers claim and resolve tasks by hundreds. Creating the rows is not counted. The number of full-page images,
which the bytes include, follows from the checkpoints and not from the jobs: repeat a run that has some.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.site")
os.environ.setdefault("LOG_LEVEL", "ERROR")

from django.db import connection

from benchmarks.harness import arguments, database, fill, make_tables, print_table
from benchmarks.report import print_targets, verdict

TASK = "task of Django's framework, no result"
TARGETS = {"bytes": 1500, "records": 16}

# PostgreSQL's processes pass their counts on once a second, and when they are idle.
FLUSHED = 1.5


@dataclass(frozen=True, slots=True)
class Written:
    """What the server has written so far."""

    bytes: float
    records: float
    images: float


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, quick={"jobs": 100}, repeat=1, jobs=5000)
    with database():
        from django.core.management import call_command

        from benchmarks.backend import enqueue_many
        from benchmarks.functions import add, nothing
        from benchmarks.models import AsyncItem, KeptItem
        from benchmarks.queues import publish, work
        from benchmarks.throughput import drain

        call_command("migrate", verbosity=0)
        make_tables(AsyncItem, KeptItem)
        count = options.jobs
        cases: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
            "move": (partial(fill, AsyncItem, count), partial(drain, AsyncItem, count)),
            "move with history": (partial(fill, KeptItem, count), partial(drain, KeptItem, count)),
            TASK: (partial(enqueue_many, nothing, count), partial(run_tasks, count)),
            "the same, with a result": (partial(enqueue_many, add, count, 1, 2), partial(run_tasks, count)),
            "task for programs, claim + resolve_many": (partial(publish, count), partial(work, count)),
        }
        found = {name: written(count, *case) for name, case in cases.items()}
        head = ["case", "bytes", "records", "full-page images"]
        lines = [
            [name, f"{each.bytes:,.0f}", f"{each.records:.1f}", f"{each.images:.2f}"] for name, each in found.items()
        ]
        print_table(f"WAL of one job, of {count:,}", head, lines)
        print_targets([
            verdict(f"{TASK}: {figure} of WAL", getattr(found[TASK], figure), bound, most=True)
            for figure, bound in TARGETS.items()
        ])  # fmt: skip


def run_tasks(count: int) -> None:
    """Run a worker until no task is left; the database may have others."""
    from stator.runner import StatorRunner
    from tasks.models import Task

    summary = StatorRunner([Task], until_idle=True).run()
    if sum(summary.moved.values()) < count:
        raise SystemExit(f"of {count} tasks only these were moved: {summary}")


def written(count: int, prepare: Callable[[], object], act: Callable[[], object]) -> Written:
    """Return what each of ``count`` jobs writes while ``act`` runs them."""
    prepare()
    with connection.cursor() as cursor:
        cursor.execute("VACUUM (ANALYZE)")
    before = _so_far()
    act()
    after = _so_far()
    each = [(getattr(after, name) - getattr(before, name)) / count for name in ("bytes", "records", "images")]
    return Written(*each)


def _so_far() -> Written:
    time.sleep(FLUSHED)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute("SELECT wal_bytes, wal_records, wal_fpi FROM pg_stat_wal")
        size, records, images = cursor.fetchone()
    return Written(float(size), records, images)


if __name__ == "__main__":
    main()
