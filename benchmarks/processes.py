"""Several worker processes on one table: how many rows they move together, and whether they wait for each other.

``python -m benchmarks.processes [--rows 60000] [--repeat 3] [--concurrency 500]``
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.harness import arguments, database, fill, make_tables, server_cpu
from benchmarks.report import Spent, Target, measure, show

# The code of each process, between the line that starts it and the line with its result.
PROCESS = """
import json, sys, time, django; django.setup()
from benchmarks.harness import own_cpu
from benchmarks.models import AsyncItem
from benchmarks.throughput import move_plainly
from stator.runner import StatorRunner
from stator.worker.startup import collect_rarely
collect_rarely()
kind, size = sys.argv[1], int(sys.argv[2])
if kind == "loop":
    work = lambda: move_plainly(AsyncItem, size)
else:
    runner = StatorRunner([AsyncItem], concurrency=size, until_idle=True)
    work = lambda: sum(runner.run().moved.values())
print("ready", flush=True)
sys.stdin.readline()
began, used = time.monotonic(), own_cpu()
moved = work()
json.dump({"moved": moved, "began": began, "ended": time.monotonic(), "own": own_cpu() - used}, sys.stdout)
"""
WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND wait_event <> 'extend'
"""

LOOP, LOOPS = "plain loop, tuples", "two plain loops"
ONE, TWO, FOUR = "one process", "two processes", "four processes"
TARGETS = {TWO: (Target(1.5, of=ONE),), FOUR: (Target(1, of=ONE),)}
CASES = {LOOP: ("loop", 1), LOOPS: ("loop", 2), ONE: ("worker", 1), TWO: ("worker", 2), FOUR: ("worker", 4)}


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, quick={"rows": 2000}, rows=60_000, concurrency=500)
    with database():
        from benchmarks.models import AsyncItem

        make_tables(AsyncItem)
        rows, size = options.rows, options.concurrency
        samples: dict[str, list[int]] = {"loop": [], "worker": []}
        cases: dict[str, tuple[int, Callable[[], Spent]]] = {
            name: (rows, lambda kind=kind, count=count: drain(kind, rows, count, size, samples[kind]))  # type: ignore[misc]
            for name, (kind, count) in CASES.items()
        }
        measured = measure(cases, options.repeat)
        show(f"Drain of {rows:,} rows by several processes, async, concurrency {size}", "moves", measured, TARGETS)
        for kind, waited in samples.items():
            print(f"  backends of {kind}s seen waiting for a lock: {sum(waited)}, in {len(waited)} samples")


def drain(kind: str, rows: int, count: int, concurrency: int, samples: list[int] | None = None) -> Spent:
    """Measure ``count`` processes of one kind, from the first one's start until the last has nothing left to do."""
    from benchmarks.models import AsyncItem

    fill(AsyncItem, rows)
    processes = [_start(kind, concurrency) for _ in range(count)]
    for process in processes:
        _line(process)
    server = server_cpu()
    with _watching(samples):
        for process in processes:
            process.stdin.write("\n")
            process.stdin.flush()
        told = [json.loads(process.communicate(timeout=600)[0]) for process in processes]
    moved = sum(one["moved"] for one in told)
    if moved != rows or AsyncItem.stator.exclude(state="done").exists():
        raise SystemExit(f"{moved} of {rows} rows were moved")
    seconds = max(one["ended"] for one in told) - min(one["began"] for one in told)
    return Spent(seconds, sum(one["own"] for one in told), server_cpu() - server)


def _start(kind: str, concurrency: int) -> Any:
    return subprocess.Popen(
        [sys.executable, "-c", PROCESS, kind, str(concurrency)],
        env=dict(os.environ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _line(process: Any) -> None:
    if process.stdout.readline() != "ready\n":
        raise SystemExit("a worker process did not start; see above")


@contextmanager
def _watching(samples: list[int] | None) -> Iterator[None]:
    """Record every 20 ms how many backends wait for a lock."""
    stop = threading.Event()
    thread = threading.Thread(target=_sample, args=[samples, stop])
    if samples is not None:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        if samples is not None:
            thread.join()


def _sample(samples: list[int], stop: threading.Event) -> None:
    from django.db import connection

    if connection.vendor == "postgresql":
        while not stop.wait(0.02):
            with connection.cursor() as cursor:
                cursor.execute(WAITING)
                samples.append(cursor.fetchone()[0])
    connection.close()


if __name__ == "__main__":
    main()
