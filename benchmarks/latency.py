"""From commit to the start of the handler, on an idle worker and under load; and what an idle worker costs.

``python -m benchmarks.latency [--objects 200] [--idle 20] [--repeat 1]``
"""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import arguments, database, make_tables, print_table

WORKER = """
import json, sys, django; django.setup()
from benchmarks.models import AsyncItem, TimedGraph, TimedItem
from stator.runner import StatorRunner
StatorRunner([TimedItem, AsyncItem]).run()
json.dump({str(pk): at for pk, at in TimedGraph.started.items()}, sys.stdout)
"""


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, objects=200, idle=20)
    with database():
        from benchmarks.models import AsyncItem, TimedItem

        make_tables(TimedItem, AsyncItem)
        lines = [line("idle worker", latencies(options.objects, load=None))]
        lines.append(line("half loaded worker", latencies(options.objects, load=AsyncItem)))
        print_table("Commit to start of the handler", ["worker", "p50 ms", "p95 ms", "p99 ms"], lines)
        print_table("An idle worker", ["transactions/s", "processor %"], [idle(options.idle)])


def latencies(count: int, load: Any) -> list[float]:
    """Milliseconds from commit to handler for ``count`` objects, created one at a time at random moments."""
    from benchmarks.models import TimedItem

    stop = threading.Event()
    committed: dict[int, float] = {}
    with worker() as process:
        loader = threading.Thread(target=keep_busy, args=[load, stop])
        if load is not None:
            loader.start()
        for _ in range(count):
            item = TimedItem._base_manager.create()
            committed[item.pk] = time.perf_counter()
            threading.Event().wait(random.uniform(0.01, 0.05))
        wait_until_done(TimedItem)
        stop.set()
        started = finish(process)
    if load is not None:
        loader.join()
    return sorted(1000 * (started[str(pk)] - at) for pk, at in committed.items())


def keep_busy(model: Any, stop: threading.Event) -> None:
    """Create objects at a rate that keeps a worker about half busy."""
    from django.db import connection

    while not stop.wait(0.05):
        model.objects.bulk_create(model() for _ in range(100))
    connection.close()


def worker() -> subprocess.Popen[str]:
    """A worker process that has claimed its first object."""
    from benchmarks.models import TimedItem

    process = subprocess.Popen(
        [sys.executable, "-c", WORKER],
        env=dict(os.environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    TimedItem._base_manager.create()
    wait_until_done(TimedItem)
    return process


def wait_until_done(model: Any) -> None:
    """Until no object of the model is left to move; a minute at the most."""
    deadline = time.monotonic() + 60
    while model.objects.exclude(state="done").exists():
        if time.monotonic() > deadline:
            raise SystemExit("the worker did not move all objects within a minute")
        threading.Event().wait(0.05)


def finish(process: subprocess.Popen[str]) -> dict[str, float]:
    """End the worker; when it began each object."""
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=30)
    started: dict[str, float] = json.loads(output)
    return started


def line(name: str, values: list[float]) -> list[str]:
    """A row of the table."""
    return [name, *(f"{values[min(len(values) - 1, int(len(values) * share))]:.2f}" for share in (0.5, 0.95, 0.99))]


def idle(seconds: int) -> list[str]:
    """Transactions per second and processor use of a worker that has nothing to do."""
    with worker() as process:
        threading.Event().wait(5)
        before, used = transactions(), cpu(process.pid)
        threading.Event().wait(seconds)
        after, used = transactions(), cpu(process.pid) - used
        finish(process)
    # The two looks at the statistics are transactions too.
    return [f"{(after - before - 1) / seconds:.2f}", f"{100 * used / seconds:.2f}"]


def transactions() -> int:
    """Transactions of this database so far, once the server has noted them all."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush(), pg_stat_clear_snapshot()")
        cursor.execute("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()")
        return int(cursor.fetchone()[0])


def cpu(pid: int) -> float:
    """Processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
