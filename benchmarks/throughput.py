"""How many objects one worker process moves per second, beside plain claim-and-record loops on the same table.

``python -m benchmarks.throughput [--rows 20000] [--repeat 3] [--concurrency 500]``
"""

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from psycopg.types.datetime import TimestamptzLoader

from benchmarks.harness import arguments, database, fill, make_tables
from benchmarks.report import Spent, Target, measure, show, watch

# The upper limit to compare with: psycopg, one claim and one record statement per batch, no fence, no statistics.
CLAIM = """
WITH picked AS MATERIALIZED (
  SELECT id FROM {table} WHERE state_ready ORDER BY COALESCE(state_next_attempt, state_changed), id
  LIMIT %s FOR NO KEY UPDATE SKIP LOCKED)
UPDATE {table} t SET state_ready = false, state_claim = %s, state_locked_until = statement_timestamp() + interval '60s'
FROM picked WHERE t.id = picked.id RETURNING {columns}
"""
RECORD = """
UPDATE {table} t
SET state = 'done', state_changed = statement_timestamp(), state_claim = NULL, state_locked_until = NULL
FROM unnest(%s::bigint[]) v(id) WHERE t.id = v.id
"""

PLANNER = ("enable_seqscan", "enable_hashjoin", "enable_mergejoin")

TUPLES, INSTANCES = "plain loop, tuples", "plain loop, Django instances"
ASYNC, DEFAULT, SYNC = "worker, async", "worker, async, default concurrency", "worker, sync"
HISTORY, CHAIN = "worker, async, history", "worker, async, chain of 4 (moves)"

TARGETS = {
    ASYNC: (
        Target(30_000),
        Target(0.6, of=INSTANCES),
        Target(0.025, figure="own", most=True),
        Target(0.015, figure="server", most=True),
    ),
    SYNC: (Target(15_000),),
    HISTORY: (Target(0.6, of=ASYNC),),
}


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, quick={"rows": 1000}, rows=20_000, concurrency=500)
    with database():
        from benchmarks import models as m

        make_tables(m.AsyncItem, m.SyncItem, m.KeptItem, m.ChainItem)
        rows, size = options.rows, options.concurrency
        cases: dict[str, tuple[int, Callable[[], Spent]]] = {
            TUPLES: (rows, lambda: plain_loop(m.AsyncItem, rows, size)),
            INSTANCES: (rows, lambda: plain_loop(m.AsyncItem, rows, size, instances=True)),
            ASYNC: (rows, lambda: worker(m.AsyncItem, rows, size)),
            DEFAULT: (rows, lambda: worker(m.AsyncItem, rows)),
            SYNC: (rows, lambda: worker(m.SyncItem, rows, size)),
            HISTORY: (rows, lambda: worker(m.KeptItem, rows, size)),
            CHAIN: (4 * rows, lambda: worker(m.ChainItem, rows, size, moves=4)),
        }
        title = f"Drain of {rows:,} rows, one process; loops in batches and workers with a concurrency of {size}"
        show(title, "moves", measure(cases, options.repeat), TARGETS)


def plain_loop(model: Any, rows: int, batch: int, instances: bool = False) -> Spent:
    """Claim and record all rows with bare statements on one connection; ``instances``: make model instances of them."""
    fill(model, rows)
    with watch() as spent:
        moved = move_plainly(model, batch, instances)
    if moved != rows:
        raise SystemExit(f"{moved} of {rows} rows were moved")
    return spent


def move_plainly(model: Any, batch: int, instances: bool = False) -> int:
    """Claim and record ready rows until there are none; return how many."""
    from django.db import connection

    table, names = model._meta.db_table, [field.attname for field in model._meta.concrete_fields]
    columns = ", ".join(f"t.{field.column}" for field in model._meta.concrete_fields)
    claim, record = CLAIM.format(table=table, columns=columns), RECORD.format(table=table)
    connection.ensure_connection()
    moved = 0
    with connection.connection.cursor() as cursor:
        # Django registers a loader in Python, which takes ten times as long.
        cursor.adapters.register_loader("timestamptz", TimestamptzLoader)
        # Like the worker. Otherwise the planner reads the whole table, or the whole primary-key index, for each batch,
        # and the limit would be too low.
        for name in PLANNER:
            cursor.execute(f"SET {name} = off")
        while taken := cursor.execute(claim, [batch, uuid.uuid4()], prepare=True).fetchall():
            keys = [row[0] for row in taken]
            if instances:
                keys = [instance.pk for instance in [model.from_db("default", names, row) for row in taken]]
            cursor.execute(record, [keys], prepare=True)
            moved += cursor.rowcount
        for name in PLANNER:
            cursor.execute(f"RESET {name}")
    return moved


def worker(
    model: Any,
    rows: int,
    concurrency: int | None = None,
    moves: int = 1,
    values: Mapping[str, str] | None = None,
) -> Spent:
    """Measure a worker from its start until it has nothing left to do; ``moves``: moves per row until it is done."""
    fill(model, rows, values)
    return drain(model, rows, concurrency, moves)


def drain(model: Any, rows: int, concurrency: int | None = None, moves: int = 1) -> Spent:
    """Measure a worker on the rows that a table has."""
    from stator.runner import StatorRunner

    with watch() as spent:
        summary = StatorRunner([model], concurrency=concurrency, until_idle=True).run()
    left = model.stator.exclude(state="done").count()
    if left or sum(summary.moved.values()) != moves * rows:
        raise SystemExit(f"{left} of {rows} rows were not moved: {summary}")
    return spent


if __name__ == "__main__":
    main()
