"""A worker that never runs out of work: how its speed and the table change, also under an old snapshot.

Objects move to and fro for ever. ``python -m benchmarks.churn [--seconds 300] [--rows 200000] [--concurrency 500]``

The time is divided into five parts, and the last is compared with the first. After each part the table is examined
while the worker goes on. The examination counts for no part, because a claim beside the worker's own can take seconds
by then. The old snapshot is a transaction that another connection leaves open throughout, as a report or a forgotten
session does. Meanwhile dead rows cannot be removed.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.db.models import Sum

from benchmarks.claims import milliseconds
from benchmarks.harness import arguments, database, fill, make_tables, print_table, server_cpu
from benchmarks.latency import cpu
from benchmarks.report import print_targets, verdict

WORKER = """
import sys, django; django.setup()
from benchmarks.models import LoopItem
from stator.runner import StatorRunner
from stator.worker.startup import collect_rarely
collect_rarely()
StatorRunner([LoopItem], concurrency=int(sys.argv[1])).run()
"""
PARTS = 5
WITHOUT, WITH = "no old snapshot", "an old snapshot held"
# The share of the speed that must remain; dead rows that cannot be removed may cost some of it.
SPEED_KEPT = {WITHOUT: 0.9, WITH: 0.5}
MEGABYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Part:
    """One part: moves, seconds, CPU seconds of worker and server; then the table, and the time of a claim of 100."""

    moves: int
    seconds: float
    own: float
    server: float
    dead: int
    megabytes: float
    claim: float

    @property
    def speed(self) -> float:
        """Return the moves per second."""
        return self.moves / self.seconds


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
                parts = churn(LoopItem, options, held=name == WITH)
                lines.append(line(name, parts))
                judged += judge(name, parts)
        head = [
            "case", "moves/s: first, last", "claim ms", "dead rows", "MB",
            "worker CPU s per 1,000", "database CPU s per 1,000",
        ]  # fmt: skip
        title = f"Churn of {options.rows:,} rows for {options.seconds} s, after the first fifth and after the last"
        print_table(title, head, lines)
        print_targets(judged)


def churn(model: Any, options: Any, held: bool) -> list[Part]:
    """Return the parts of a run; the table is examined after each."""
    # A fresh table for each run: TRUNCATE gives it new files.
    fill(model, options.rows)
    with worker(options.concurrency) as process, snapshot(model, held):
        wait_for_first(model)
        parts = [part(model, process.pid, options.seconds / PARTS) for _ in range(PARTS)]
        if process.poll() is not None:
            raise SystemExit("the worker ended; see above")
        return parts


def judge(name: str, parts: list[Part]) -> list[str]:
    """Return verdicts on the last part's speed by the first's, and on the table's growth after the third part."""
    first, last = parts[0], parts[-1]
    if not first.moves:
        return [f"{name}: nothing was moved in the first part; use more --seconds"]
    told = [verdict(f"{name}: last part's speed by the first's", last.speed / first.speed, SPEED_KEPT[name])]
    if name == WITHOUT:
        growth = last.megabytes / parts[2].megabytes
        told.append(verdict(f"{name}: size at the end by that after the third part", growth, 1.2, most=True))
    return told


def line(name: str, parts: list[Part]) -> list[str]:
    """Return a row of the printed table."""
    thousands = sum(each.moves for each in parts) / 1000
    first, last = parts[0], parts[-1]
    return [
        name,
        f"{first.speed:,.0f}, {last.speed:,.0f}",
        f"{first.claim:.2f}, {last.claim:.2f}",
        f"{first.dead:,}, {last.dead:,}",
        f"{first.megabytes:.1f}, {last.megabytes:.1f}",
        f"{sum(each.own for each in parts) / thousands:.3f}" if thousands else "-",
        f"{sum(each.server for each in parts) / thousands:.3f}" if thousands else "-",
    ]


def part(model: Any, pid: int, seconds: float) -> Part:
    """Measure the worker's process for some seconds, then examine the table."""
    from django.db import connection

    began, moves, own, server = time.monotonic(), moved(model), cpu(pid), server_cpu()
    threading.Event().wait(seconds)
    own, server = cpu(pid) - own, server_cpu() - server
    moves, seconds = moved(model) - moves, time.monotonic() - began
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(
            "SELECT n_dead_tup, pg_total_relation_size(relid) FROM pg_stat_user_tables WHERE relname = %s",
            [model._meta.db_table],
        )
        dead, size = cursor.fetchone()
    claim = milliseconds(model, 5, limit=100, exactly=False)
    return Part(moves, seconds, own, server, dead, size / MEGABYTE, claim)


def moved(model: Any) -> int:
    """Return the moves so far, from the statistics written with each; a sum over the table would read all dead rows."""
    from stator.models import Stats

    counted = Stats.objects.filter(model_label=model._meta.label_lower).exclude(to="")
    return counted.aggregate(moves=Sum("handled", default=0))["moves"]


@contextmanager
def worker(concurrency: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a worker process until the block ends."""
    process = subprocess.Popen([sys.executable, "-c", WORKER, str(concurrency)], env=dict(os.environ))
    try:
        yield process
    finally:
        process.terminate()
        process.wait(timeout=60)


@contextmanager
def snapshot(model: Any, held: bool) -> Iterator[None]:
    """With ``held``, keep a transaction open on another connection for the whole block."""
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
    """Wait until the worker has moved something, for a minute at most."""
    deadline = time.monotonic() + 60
    while not model._base_manager.filter(state_version__gt=0).exists():
        if time.monotonic() > deadline:
            raise SystemExit("the worker moved nothing within a minute")
        threading.Event().wait(0.05)


if __name__ == "__main__":
    main()
