"""A worker that never runs out of work: what becomes of its speed and of the table, also under an old snapshot.

Objects move to and fro for ever. ``python -m benchmarks.churn [--seconds 300] [--rows 200000] [--concurrency 500]``

The time is cut into five parts, and the last is judged by the first. The old snapshot is a transaction that another
connection leaves open throughout, as a report or a forgotten session does: dead rows cannot be removed meanwhile.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from benchmarks.claims import milliseconds
from benchmarks.harness import arguments, database, fill, make_tables, print_table, server_cpu
from benchmarks.latency import cpu
from benchmarks.report import print_targets, verdict

WORKER = """
import sys, django; django.setup()
from benchmarks.models import LoopItem
from stator.runner import StatorRunner
from stator.startup import collect_rarely
collect_rarely()
StatorRunner([LoopItem], concurrency=int(sys.argv[1])).run()
"""
PARTS = 5
WITHOUT, WITH = "no old snapshot", "an old snapshot held"
# With dead rows that nobody may remove a part of the speed may go.
SPEED_KEPT = {WITHOUT: 0.9, WITH: 0.5}
MEGABYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Look:
    """The table at one moment: moves so far, dead rows, megabytes with indexes, milliseconds of a claim."""

    at: float
    moves: int
    dead: int
    size: float
    claim: float


def main() -> None:
    """Measure and print."""
    options = arguments(
        __doc__, quick={"seconds": 5, "rows": 5000}, repeat=1, seconds=300, rows=200_000, concurrency=500
    )
    with database():
        from benchmarks.models import LoopItem

        make_tables(LoopItem)
        lines, judged = [], []
        for _ in range(options.repeat):
            for name in (WITHOUT, WITH):
                looks, own, server = churn(LoopItem, options, held=name == WITH)
                lines.append(line(name, looks, own, server))
                judged += judge(name, looks)
        head = [
            "case", "moves/s: first, last", "claim ms", "dead rows", "MB",
            "worker CPU s per 1,000", "database CPU s per 1,000",
        ]  # fmt: skip
        title = f"Churn of {options.rows:,} rows for {options.seconds} s, after the first fifth and after the last"
        print_table(title, head, lines)
        print_targets(judged)


def churn(model: Any, options: Any, held: bool) -> tuple[list[Look], float, float]:
    """A look at each boundary between parts, and the processor seconds of worker and server in between."""
    # Not left over from the run before: a TRUNCATE gives the table new files.
    fill(model, options.rows)
    with worker(options.concurrency) as process, snapshot(model, held):
        wait_for_first(model)
        own, server = cpu(process.pid), server_cpu()
        looks = [look(model)]
        for part in range(1, PARTS + 1):
            threading.Event().wait(max(0, looks[0].at + part * options.seconds / PARTS - time.monotonic()))
            looks.append(look(model))
        if process.poll() is not None:
            raise SystemExit("the worker ended; see above")
        return looks, cpu(process.pid) - own, server_cpu() - server


def judge(name: str, looks: list[Look]) -> list[str]:
    """The last part's speed by the first's; and whether the table had stopped growing after three parts of five."""
    rates = speeds(looks)
    if not rates[0]:
        return [f"{name}: nothing was moved in the first part; use more --seconds"]
    told = [verdict(f"{name}: last part's speed by the first's", rates[-1] / rates[0], SPEED_KEPT[name])]
    if name == WITHOUT:
        growth = looks[-1].size / looks[3].size
        told.append(verdict(f"{name}: size at the end by that after the third part", growth, 1.2, most=True))
    return told


def speeds(looks: list[Look]) -> list[float]:
    """Moves per second of each part."""
    return [(after.moves - before.moves) / (after.at - before.at) for before, after in pairwise(looks)]


def line(name: str, looks: list[Look], own: float, server: float) -> list[str]:
    """A row of the table."""
    rates, thousands = speeds(looks), (looks[-1].moves - looks[0].moves) / 1000
    first, last = looks[1], looks[-1]
    return [
        name,
        f"{rates[0]:,.0f}, {rates[-1]:,.0f}",
        f"{first.claim:.2f}, {last.claim:.2f}",
        f"{first.dead:,}, {last.dead:,}",
        f"{first.size:.1f}, {last.size:.1f}",
        f"{own / thousands:.3f}" if thousands else "-",
        f"{server / thousands:.3f}" if thousands else "-",
    ]


def look(model: Any) -> Look:
    """The table now."""
    from django.db import connection

    at = time.monotonic()
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT sum(state_version) FROM {model._meta.db_table}")
        moves = int(cursor.fetchone()[0])
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(
            "SELECT n_dead_tup, pg_total_relation_size(relid) FROM pg_stat_user_tables WHERE relname = %s",
            [model._meta.db_table],
        )
        dead, size = cursor.fetchone()
    return Look(at, moves, dead, size / MEGABYTE, milliseconds(model, 5, limit=100, exactly=False))


@contextmanager
def worker(concurrency: int) -> Iterator[subprocess.Popen[bytes]]:
    """A worker process, ended at the end."""
    process = subprocess.Popen([sys.executable, "-c", WORKER, str(concurrency)], env=dict(os.environ))
    try:
        yield process
    finally:
        process.terminate()
        process.wait(timeout=60)


@contextmanager
def snapshot(model: Any, held: bool) -> Iterator[None]:
    """With ``held`` a connection whose transaction began before, and lasts."""
    from django.db import connections

    if not held:
        yield
        return
    other = connections.create_connection("default")
    try:
        with other.cursor() as cursor:
            cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            cursor.execute(f"SELECT 1 FROM {model._meta.db_table} LIMIT 1")
        yield
    finally:
        other.close()


def wait_for_first(model: Any) -> None:
    """Until the worker has moved something; a minute at the most."""
    deadline = time.monotonic() + 60
    while not model._base_manager.filter(state_version__gt=0).exists():
        if time.monotonic() > deadline:
            raise SystemExit("the worker moved nothing within a minute")
        threading.Event().wait(0.05)


if __name__ == "__main__":
    main()
