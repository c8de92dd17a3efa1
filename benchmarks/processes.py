"""Several worker processes on one table: how much more they move together, and whether they wait for each other.

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

WORKER = """
import json, sys, time, django; django.setup()
from benchmarks.harness import own_cpu
from benchmarks.models import AsyncItem
from stator.runner import StatorRunner
from stator.startup import collect_rarely
collect_rarely()
runner = StatorRunner([AsyncItem], concurrency=int(sys.argv[1]), until_idle=True)
print("ready", flush=True)
sys.stdin.readline()
began, used = time.monotonic(), own_cpu()
moved = sum(runner.run().moved.values())
json.dump({"moved": moved, "began": began, "ended": time.monotonic(), "own": own_cpu() - used}, sys.stdout)
"""
WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND wait_event <> 'extend'
"""

ONE, TWO, FOUR = "one process", "two processes", "four processes"
TARGETS = {TWO: (Target(1.5, of=ONE),), FOUR: (Target(1, of=ONE),)}


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, quick={"rows": 2000}, rows=60_000, concurrency=500)
    with database():
        from benchmarks.models import AsyncItem

        make_tables(AsyncItem)
        rows, size = options.rows, options.concurrency
        looks: list[int] = []
        cases: dict[str, tuple[int, Callable[[], Spent]]] = {
            name: (rows, lambda count=count: workers(rows, count, size, looks))  # type: ignore[misc]
            for name, count in ((ONE, 1), (TWO, 2), (FOUR, 4))
        }
        measured = measure(cases, options.repeat)
        show(f"Drain of {rows:,} rows by several processes, async, concurrency {size}", "moves", measured, TARGETS)
        print(f"  backends seen waiting for a lock: {sum(looks)}, in {len(looks)} looks")


def workers(rows: int, count: int, concurrency: int, looks: list[int] | None = None) -> Spent:
    """So many worker processes from the first one's start until the last has nothing left to do."""
    from benchmarks.models import AsyncItem

    fill(AsyncItem, rows)
    processes = [_start(concurrency) for _ in range(count)]
    for process in processes:
        _line(process)
    server = server_cpu()
    with _watching(looks):
        for process in processes:
            process.stdin.write("\n")
            process.stdin.flush()
        told = [json.loads(process.communicate(timeout=600)[0]) for process in processes]
    moved = sum(one["moved"] for one in told)
    if moved != rows or AsyncItem.stator.exclude(state="done").exists():
        raise SystemExit(f"{moved} of {rows} rows were moved")
    seconds = max(one["ended"] for one in told) - min(one["began"] for one in told)
    return Spent(seconds, sum(one["own"] for one in told), server_cpu() - server)


def _start(concurrency: int) -> Any:
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(concurrency)],
        env=dict(os.environ),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _line(process: Any) -> None:
    if process.stdout.readline() != "ready\n":
        raise SystemExit("a worker process did not start; see above")


@contextmanager
def _watching(looks: list[int] | None) -> Iterator[None]:
    """Count every 20 ms how many backends wait for a lock, into the list."""
    stop = threading.Event()
    thread = threading.Thread(target=_look, args=[looks, stop])
    if looks is not None:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        if looks is not None:
            thread.join()


def _look(looks: list[int], stop: threading.Event) -> None:
    from django.db import connection

    if connection.vendor == "postgresql":
        while not stop.wait(0.02):
            with connection.cursor() as cursor:
                cursor.execute(WAITING)
                looks.append(cursor.fetchone()[0])
    connection.close()


if __name__ == "__main__":
    main()
