"""What one job writes to PostgreSQL's write-ahead log: bytes and records, by ``pg_stat_wal``.

``python -m benchmarks.wal [--jobs 5000] [--kinds]``: a worker drains moves, moves with history, and tasks of Django's
framework; named workers claim and resolve tasks by hundreds. Creating the rows is not counted. The number of full-page
images, which the bytes include, follows from the checkpoints and not from the jobs: repeat a run that has some.

``--kinds`` prints for each case which records these are and of which table or index, by ``pg_waldump``. It takes the
files of the server, so it needs one on this machine whose files this user can read.
"""

import os
import re
import subprocess
import time
from argparse import ArgumentParser
from collections import Counter
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

# A record as ``pg_waldump`` prints it, with the file of the first block that it is about.
RECORD = re.compile(
    r"rmgr: (?P<manager>\S+)\s+len \(rec/tot\):\s*\d+/\s*(?P<bytes>\d+),.*?desc: (?P<what>\S+)"
    r"(?:.*?blkref #0: rel \d+/\d+/(?P<table>\d+))?"
)
# Fewer records a job are not printed.
LEAST = 0.005


@dataclass(frozen=True, slots=True)
class Written:
    """What the server has written so far."""

    bytes: float
    records: float
    images: float


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, {"jobs": 100}, _add_kinds, repeat=1, jobs=5000)
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
        found = {name: written(count, *case, name if options.kinds else "") for name, case in cases.items()}
        head = ["case", "bytes", "records", "full-page images"]
        lines = [
            [name, f"{each.bytes:,.0f}", f"{each.records:.1f}", f"{each.images:.2f}"] for name, each in found.items()
        ]
        print_table(f"WAL of one job, of {count:,}", head, lines)
        print_targets([
            verdict(f"{TASK}: {figure} of WAL", getattr(found[TASK], figure), bound, most=True)
            for figure, bound in TARGETS.items()
        ])  # fmt: skip


def _add_kinds(parser: ArgumentParser) -> None:
    parser.add_argument("--kinds", action="store_true", help="also which records these are, and of what")


def run_tasks(count: int) -> None:
    """Run a worker until no task is left; the database may have others."""
    from stator.runner import StatorRunner
    from tasks.models import Task

    summary = StatorRunner([Task], until_idle=True).run()
    if sum(summary.moved.values()) < count:
        raise SystemExit(f"of {count} tasks only these were moved: {summary}")


def written(count: int, prepare: Callable[[], object], act: Callable[[], object], kinds: str = "") -> Written:
    """Return what each of ``count`` jobs writes while ``act`` runs them; print the records if ``kinds`` has a title."""
    prepare()
    with connection.cursor() as cursor:
        cursor.execute("VACUUM (ANALYZE)")
    before, start = _so_far(), _place()
    act()
    after = _so_far()
    if kinds:
        _print_kinds(kinds, count, start, _place())
    each = [(getattr(after, name) - getattr(before, name)) / count for name in ("bytes", "records", "images")]
    return Written(*each)


def _so_far() -> Written:
    time.sleep(FLUSHED)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute("SELECT wal_bytes, wal_records, wal_fpi FROM pg_stat_wal")
        size, records, images = cursor.fetchone()
    return Written(float(size), records, images)


def _place() -> str:
    """Return up to where the log is on the disk."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_current_wal_flush_lsn()")
        return str(cursor.fetchone()[0])


def _print_kinds(title: str, count: int, start: str, end: str) -> None:
    from tests.servers.postgres.programs import find_programs

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_relation_filenode(oid)::text, relname FROM pg_class WHERE relfilenode > 0")
        names = dict(cursor.fetchall())
        cursor.execute("SHOW data_directory")
        log = f"{cursor.fetchone()[0]}/pg_wal"
    command = [str(find_programs() / "pg_waldump"), "--path", log, "--start", start, "--end", end]
    records, size = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for line in subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout.splitlines():
        if found := RECORD.match(line):
            kind = f"{found['manager']} {found['what']}", names.get(found["table"], "")
            records[kind] += 1
            size[kind] += int(found["bytes"])
    lines = [
        [*kind, f"{size[kind] / count:,.0f}", f"{number / count:.2f}"]
        for kind, number in records.most_common()
        if number / count >= LEAST
    ]
    print_table(f"{title}: records of one job", ["record", "of", "bytes", "records"], lines)


if __name__ == "__main__":
    main()
