"""One worker over many schemas: the cost of 1,000 that are idle, and the rate if ten of them have work, beside one.

``python -m benchmarks.schemas [--schemas 1000] [--rows 200000] [--seconds 30] [--repeat 3]``. Tables for 1,000 schemas
take a minute to make.
"""

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from typing import Any, NamedTuple

from benchmarks.harness import arguments, database, make_tables, print_table, server_cpu, spread
from benchmarks.idle import transactions
from benchmarks.latency import cpu
from benchmarks.report import print_targets, verdict

BUSY = 10
WORKER = """
import json, sys, django
django.setup()
from stator.models import Stats
from stator.runner import StatorRunner
from benchmarks.models import AsyncItem
from benchmarks.harness import own_cpu
runner = StatorRunner([AsyncItem], until_idle=sys.argv[1] == "drain")
runner.schemas = json.loads(sys.argv[2])
runner.run()
print(own_cpu())
"""


class Idle(NamedTuple):
    """Figures of an idle worker, per second."""

    transactions: float
    own: float
    server: float


class Drain(NamedTuple):
    """Rows per second from the first move to the last, and CPU seconds for 1,000 of the worker and of the server."""

    rate: float
    own: float
    server: float


def main() -> None:
    """Measure and print."""
    options = arguments(
        __doc__, quick={"schemas": 20, "rows": 1000, "seconds": 1}, schemas=1000, rows=200_000, seconds=30
    )
    with database():
        from benchmarks.models import AsyncItem

        make_tables(AsyncItem)
        names = [f"tenant_{number}" for number in range(options.schemas)]
        make_schemas(names)
        runs: dict[str, list[str]] = {"one schema": names[:1], f"{options.schemas:,} schemas": names}
        idle: dict[str, list[Idle]] = {name: [] for name in runs}
        drains: dict[str, list[Drain]] = {name: [] for name in runs}
        for turn in range(options.repeat):
            for name, schemas in runs.items():
                print(f"run {turn + 1} of {options.repeat}, {name}", file=sys.stderr, flush=True)
                idle[name].append(rest(schemas, options.seconds))
                drains[name].append(drain(schemas, schemas[:: max(1, len(schemas) // BUSY)], options.rows))
        head = ["", "transactions/s: median (least-most)", "processor %", "processor % of the server"]
        print_table("An idle worker", head, [[name, *cells(measured)] for name, measured in idle.items()])
        head = ["", "moves/s: median (least-most)", "worker CPU s per 1,000", "server CPU s per 1,000"]
        lines = [[name, *cells(measured, 0, 3, 3)] for name, measured in drains.items()]
        print_table(f"Moves of {options.rows:,} rows in one schema, and in {BUSY} of them", head, lines)
        (one, many), (alone, spread_out) = idle.values(), drains.values()
        print_targets([
            *(verdict(f"idle: {figure} by those of one", median(many, figure) / median(one, figure), 5, most=True)
              for figure in Idle._fields),
            verdict("moves/s by those of one", median(spread_out, "rate") / median(alone, "rate"), 0.8),
        ])  # fmt: skip


def cells(measured: list[Any], *digits: int) -> list[str]:
    """Return the spread of each figure."""
    columns = zip(*measured, strict=True)
    return [spread(list(values), places) for values, places in zip(columns, digits or (2, 2, 2), strict=True)]


def median(measured: list[Any], figure: str) -> float:
    """Return the median of a figure, which is not zero."""
    return max(1e-9, statistics.median(getattr(run, figure) for run in measured))


def make_schemas(names: list[str]) -> None:
    """Make schemas with copies of all tables."""
    from django.db import connection

    with connection.cursor() as cursor:
        tables = [
            table for table in connection.introspection.table_names(cursor) if table.startswith(("stator", "bench"))
        ]
        for name in names:
            copies = [f"CREATE TABLE {name}.{table} (LIKE {table} INCLUDING ALL)" for table in tables]
            cursor.execute("; ".join([f"DROP SCHEMA IF EXISTS {name} CASCADE", f"CREATE SCHEMA {name}", *copies]))


def start(purpose: str, schemas: list[str]) -> "subprocess.Popen[str]":
    """Start a worker for these schemas."""
    command = [sys.executable, "-c", WORKER, purpose, json.dumps(schemas)]
    return subprocess.Popen(command, env={**os.environ}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def rest(schemas: list[str], seconds: int) -> Idle:
    """Return the figures of an idle worker, measured after it has looked into all schemas."""
    fill(schemas[-1:], 1)
    with start("idle", schemas) as process:
        wait_until_done(schemas[-1:])
        threading.Event().wait(seconds)
        before, used, served = transactions(), cpu(process.pid), server_cpu()
        threading.Event().wait(seconds)
        found = Idle(
            (transactions() - before) / seconds,
            100 * (cpu(process.pid) - used) / seconds,
            100 * (server_cpu() - served) / seconds,
        )
        process.terminate()
    return found


def drain(schemas: list[str], busy: list[str], rows: int) -> Drain:
    """Return the figures of a worker that moves ``rows`` in the busy schemas."""
    fill(busy, rows // len(busy))
    served = server_cpu()
    with start("drain", schemas) as process:
        own = float(process.communicate()[0])
    served = server_cpu() - served
    parts = " UNION ALL ".join(f"SELECT state_changed FROM {name}.benchmarks_asyncitem" for name in busy)
    [(seconds,)] = rows_of(f"SELECT extract(epoch FROM max(state_changed) - min(state_changed)) FROM ({parts}) moved")
    # One statement may have moved so few rows.
    return Drain(rows / max(0.001, float(seconds)), 1000 * own / rows, 1000 * served / rows)


def fill(schemas: list[str], rows: int) -> None:
    """Replace the rows of schemas."""
    from django.db import connection

    with connection.cursor() as cursor:
        for name in schemas:
            table = f"{name}.benchmarks_asyncitem"
            cursor.execute(f"TRUNCATE {table} RESTART IDENTITY")
            columns = "(state, state_ready, payload)"
            cursor.execute(f"INSERT INTO {table} {columns} SELECT 'new', true, 'x' FROM generate_series(1, %s)", [rows])
            cursor.execute(f"VACUUM (ANALYZE) {table}")


def wait_until_done(schemas: list[str]) -> None:
    """Wait until a worker has moved all rows, for two minutes at most."""
    deadline = time.monotonic() + 120
    while any(rows_of(f"SELECT 1 FROM {name}.benchmarks_asyncitem WHERE state = 'new' LIMIT 1") for name in schemas):
        if time.monotonic() > deadline:
            raise SystemExit("the worker did not move all objects within two minutes")
        threading.Event().wait(0.05)


def rows_of(statement: str) -> list[Any]:
    """Return the rows of a statement."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


if __name__ == "__main__":
    main()
