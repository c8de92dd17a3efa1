"""The time from commit to the start of the handler, on an idle worker and on one under half of its maximum load.

``python -m benchmarks.latency [--objects 200] [--rows 20000] [--repeat 3]``
"""

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import arguments, database, make_tables, print_table, spread
from benchmarks.report import note, print_targets, verdict
from benchmarks.throughput import worker as drain

WORKER = """
import json, sys, django; django.setup()
from benchmarks.models import AsyncItem, TimedGraph, TimedItem
from stator.runner import StatorRunner
from stator.worker.startup import collect_rarely
collect_rarely()
StatorRunner([TimedItem, AsyncItem]).run()
json.dump({str(pk): at for pk, at in TimedGraph.started.items()}, sys.stdout)
"""


SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
IDLE, HALF = "idle worker", "half loaded worker"
TARGETS: dict[str, dict[str, float]] = {IDLE: {"p50": 2, "p95": 3.5, "p99": 5}, HALF: {"p99": 30}}


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, quick={"objects": 20, "rows": 1000}, objects=200, rows=20_000)
    with database():
        from benchmarks.models import AsyncItem, TimedItem

        make_tables(TimedItem, AsyncItem)
        # The load is half of what a worker can drain with the concurrency used below, so that is measured first.
        half = 0.5 * options.rows / drain(AsyncItem, options.rows).seconds
        measured: dict[str, list[dict[str, float]]] = {IDLE: [], HALF: []}
        busy: dict[str, list[float]] = {IDLE: [], HALF: []}
        for _ in range(options.repeat):
            for name, load in ((IDLE, 0.0), (HALF, half)):
                values, used = latencies(options.objects, load)
                measured[name].append({share: at(values, part) for share, part in SHARES.items()})
                busy[name].append(100 * used)
        lines = [
            [name, *(spread([run[share] for run in runs], 2) for share in SHARES), spread(busy[name])]
            for name, runs in measured.items()
        ]
        for name, share in ((HALF, "p50"), (HALF, "p95")):
            note(f"{name}: {share} ms", statistics.median(run[share] for run in measured[name]), less=True)
        head = ["", "p50 ms: median (least-most)", "p95 ms", "p99 ms", "processor % of the worker"]
        title = f"Commit to start of the handler, {options.objects} objects; half load is {half:,.0f} others a second"
        print_table(title, head, lines)
        print_targets(
            [
                verdict(f"{name}: {share} ms", statistics.median(run[share] for run in measured[name]), most, most=True)
                for name, bounds in TARGETS.items()
                for share, most in bounds.items()
            ]
        )


def latencies(count: int, load: float) -> tuple[list[float], float]:
    """Return sorted milliseconds from commit to handler for ``count`` objects, created one by one at random times.

    The second value is the share of a CPU that the worker used meanwhile. ``load``: other objects created per second.
    """
    from benchmarks.models import AsyncItem, TimedItem

    stop = threading.Event()
    committed: dict[int, float] = {}
    with worker() as process:
        loader = threading.Thread(target=keep_busy, args=[AsyncItem, load, stop])
        if load:
            loader.start()
            stop.wait(1)
        used, started = cpu(process.pid), time.perf_counter()
        for _ in range(count):
            item = TimedItem._base_manager.create()
            committed[item.pk] = time.perf_counter()
            threading.Event().wait(random.uniform(0.01, 0.05))
        used = (cpu(process.pid) - used) / (time.perf_counter() - started)
        stop.set()
        if load:
            loader.join()
        wait_until_done(TimedItem)
        began = finish(process)
    return sorted(1000 * (began[str(pk)] - at) for pk, at in committed.items()), used


def keep_busy(model: Any, rate: float, stop: threading.Event) -> None:
    """Create ``rate`` objects per second, in 20 portions per second."""
    from django.db import connection

    # Rows are inserted by SQL: this process must also record times, and creating instances would delay that.
    insert = f"""INSERT INTO {model._meta.db_table} (state, state_ready, payload)
        SELECT 'new', true, 'x' FROM generate_series(1, %s)"""
    started, created = time.perf_counter(), 0
    while not stop.wait(0.05):
        wanted = int(rate * (time.perf_counter() - started)) - created
        with connection.cursor() as cursor:
            cursor.execute(insert, [wanted - 1])
        # The last one through the ORM, as an application would, so that the worker is notified.
        model.objects.create()
        created += max(1, wanted)
    connection.close()


def worker(**environment: str) -> subprocess.Popen[str]:
    """Start a worker process, with further variables, and return it once it has moved its first object."""
    from benchmarks.models import TimedItem

    process = subprocess.Popen(
        [sys.executable, "-c", WORKER],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    TimedItem._base_manager.create()
    wait_until_done(TimedItem)
    return process


def wait_until_done(model: Any) -> None:
    """Wait until all objects of the model are done, for a minute at most."""
    deadline = time.monotonic() + 60
    while model.objects.exclude(state="done").exists():
        if time.monotonic() > deadline:
            raise SystemExit("the worker did not move all objects within a minute")
        threading.Event().wait(0.05)


def finish(process: subprocess.Popen[str]) -> dict[str, float]:
    """End the worker; return the time at which it began each object."""
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=30)
    started: dict[str, float] = json.loads(output)
    return started


def at(values: list[float], share: float) -> float:
    """Return a quantile of sorted values: ``share`` of them lie below it."""
    return values[min(len(values) - 1, int(len(values) * share))]


def cpu(pid: int) -> float:
    """Return the CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
