"""How many objects one worker process moves per second, beside a plain claim-and-record loop on the same table.

``python -m benchmarks.throughput [--rows 20000] [--repeat 3] [--concurrency 500]``
"""

import time
from collections.abc import Callable
from typing import Any

from benchmarks.harness import arguments, database, fill, make_tables, own_cpu, print_table, server_cpu, spread

# The limit to compare with: psycopg, tuples, one claim and one record statement per batch, no fence, no statistics.
CLAIM = """
WITH picked AS MATERIALIZED (
  SELECT id FROM {table} WHERE state_ready ORDER BY COALESCE(state_next_attempt, state_changed), id
  LIMIT %s FOR NO KEY UPDATE SKIP LOCKED)
UPDATE {table} t SET state_ready = false, state_claim = %s, state_locked_until = statement_timestamp() + interval '60s'
FROM picked WHERE t.id = picked.id RETURNING t.*
"""
RECORD = """
UPDATE {table} t
SET state = 'done', state_changed = statement_timestamp(), state_claim = NULL, state_locked_until = NULL
FROM unnest(%s::bigint[]) v(id) WHERE t.id = v.id
"""


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, rows=20_000, concurrency=500)
    with database():
        from benchmarks.models import AsyncItem, SyncItem

        make_tables(AsyncItem, SyncItem)
        cases: dict[str, Callable[[], float]] = {
            f"plain psycopg loop, batches of {options.concurrency}": lambda: plain_loop(AsyncItem, options),
            "plain psycopg loop, batches of 100": lambda: plain_loop(AsyncItem, options, 100),
            "worker, async handler": lambda: worker(AsyncItem, options),
            "worker, async handler, default concurrency": lambda: worker(AsyncItem, options, None),
            "worker, sync handler": lambda: worker(SyncItem, options),
        }
        measured: dict[str, list[tuple[float, float, float]]] = {name: [] for name in cases}
        # In turns, so that a machine that slows down slows all of them.
        for _ in range(options.repeat):
            for name, case in cases.items():
                measured[name].append(timed(case, options.rows))
        show(measured, options.rows)


def timed(case: Callable[[], float], rows: int) -> tuple[float, float, float]:
    """Rows per second; processor seconds per 1,000 rows of this process and of the server."""
    own, server = own_cpu(), server_cpu()
    seconds = case()
    return rows / seconds, (own_cpu() - own) / rows * 1000, (server_cpu() - server) / rows * 1000


def plain_loop(model: Any, options: Any, batch: int | None = None) -> float:
    """Seconds to claim and record all rows with bare statements on one connection."""
    import uuid

    from django.db import connection

    fill(model, options.rows)
    table = model._meta.db_table
    claim, record = CLAIM.format(table=table), RECORD.format(table=table)
    connection.ensure_connection()
    started = time.perf_counter()
    with connection.connection.cursor() as cursor:
        # As the worker does: otherwise the planner reads the whole table for each batch, and the limit is too low.
        cursor.execute("SET enable_seqscan = off")
        while rows := cursor.execute(claim, [batch or options.concurrency, uuid.uuid4()], prepare=True).fetchall():
            cursor.execute(record, [[row[0] for row in rows]], prepare=True)
    return time.perf_counter() - started


def worker(model: Any, options: Any, concurrency: int | None = 0) -> float:
    """Seconds from the start of a worker until it has nothing left to do."""
    from stator.runner import StatorRunner

    fill(model, options.rows)
    concurrency = options.concurrency if concurrency == 0 else concurrency
    started = time.perf_counter()
    summary = StatorRunner([model], concurrency=concurrency, until_idle=True).run()
    seconds = time.perf_counter() - started
    left = model.stator.exclude(state="done").count()
    if left or sum(summary.moved.values()) != options.rows:
        raise SystemExit(f"{left} of {options.rows} rows were not moved: {summary}")
    return seconds


def show(measured: dict[str, list[tuple[float, float, float]]], rows: int) -> None:
    """Print the table; the ratio is that of the medians to the first line."""
    first = sorted(rate for rate, _, _ in next(iter(measured.values())))
    limit = first[len(first) // 2]
    lines = []
    for name, runs in measured.items():
        rates = [rate for rate, _, _ in runs]
        middle = sorted(rates)[len(rates) // 2]
        lines.append([
            name, spread(rates), f"{middle / limit:.2f}",
            spread([own for _, own, _ in runs], 3), spread([server for _, _, server in runs], 3),
        ])  # fmt: skip
    head = ["case", "moves/s: median (least-most)", "ratio", "CPU s per 1,000", "server CPU s per 1,000"]
    print_table(f"Drain of {rows:,} rows, one process", head, lines)


if __name__ == "__main__":
    main()
