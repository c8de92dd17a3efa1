"""Moving many objects without a call for each, beside a bare UPDATE; atomic states, beside bare transactions.

``python -m benchmarks.sets [--rows 50000] [--repeat 3]``
"""

from collections.abc import Callable
from functools import partial
from threading import Thread
from typing import Any

import psycopg

from benchmarks.harness import arguments, database, fill, make_tables, psycopg_parameters
from benchmarks.report import Spent, Target, measure, show, watch
from benchmarks.throughput import worker

ASYNC, BATCH = "async handler, one object a call", "async handler, batch of 500"
ATOMIC, ATOMIC_BATCH = "atomic, one object a call", "atomic, batch of 500"
BARE = "bare transaction for each object"
UPDATE, MATCH, MATCH_HISTORY = "bare UPDATE, ranges of keys", "SQL transition", "SQL transition with history"

TARGETS = {
    BATCH: (Target(45_000),),
    ATOMIC: (Target(0.3, of=BARE),),
    ATOMIC_BATCH: (Target(15_000),),
    MATCH: (Target(150_000),),
    MATCH_HISTORY: (Target(0.6, of=MATCH),),
}


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, quick={"rows": 1000}, rows=50_000)
    with database():
        from benchmarks import models as m

        make_tables(m.AsyncItem, m.BatchItem, m.AtomicItem, m.AtomicBatchItem, m.SetItem, m.KeptSetItem)
        rows = options.rows
        few = max(1, rows // 10)
        cases: dict[str, tuple[int, Callable[[], Spent]]] = {
            ASYNC: (rows, lambda: worker(m.AsyncItem, rows, 500)),
            BATCH: (rows, lambda: worker(m.BatchItem, rows)),
            BARE: (few, lambda: bare_transactions(m.AtomicItem, few)),
            ATOMIC: (few, lambda: worker(m.AtomicItem, few)),
            ATOMIC_BATCH: (rows, lambda: worker(m.AtomicBatchItem, rows)),
            UPDATE: (rows, lambda: bare_update(m.SetItem, rows)),
            MATCH: (rows, lambda: transition(m.SetItem, rows)),
            MATCH_HISTORY: (rows, lambda: transition(m.KeptSetItem, rows)),
        }
        show(f"Moves of {rows:,} rows, one process", "rows", measure(cases, options.repeat), TARGETS)


def bare_update(model: Any, rows: int) -> Spent:
    """Write the same columns with a bare UPDATE: no locks taken first, no guard, no statistics.

    This is the most that the database can do with this table, as a limit for SQL transitions.
    """
    from django.db import connection

    from stator.worker.duties import MOVED_AT_ONCE

    fill(model, rows)
    statement = f"""
        UPDATE {model._meta.db_table} SET state = 'done', state_changed = statement_timestamp(), state_ready = false,
          state_version = state_version + 1, state_attempts = 0, state_failures = 0, state_crashes = 0
        WHERE id > %s AND id <= %s"""
    moved = 0
    with watch() as spent, connection.cursor() as cursor:
        for first in range(0, rows, MOVED_AT_ONCE):
            cursor.execute(statement, [first, first + MOVED_AT_ONCE])
            moved += cursor.rowcount
    if moved != rows:
        raise SystemExit(f"{moved} of {rows} rows were moved")
    return spent


def bare_transactions(model: Any, rows: int) -> Spent:
    """Lock, write and move each row in a transaction of three round trips, on as many connections as a worker has.

    This is the most that an atomic handler which saves a field can reach here: without Django, claim or statistics.
    """
    from django.db import connection

    from stator.conf import load_settings

    fill(model, rows)
    threads, moved = load_settings().THREADS, []
    connect = partial(psycopg.connect, **psycopg_parameters(connection), cursor_factory=psycopg.ClientCursor)

    def work(first: int) -> None:
        with connect(autocommit=True) as server, server.cursor() as cursor:
            for key in range(first, rows + 1, threads):
                for text in LOCKED.format(table=model._meta.db_table).split("\n"):
                    cursor.execute(text, [key])
                moved.append(cursor.statusmessage == "UPDATE 1")

    workers = [Thread(target=work, args=[first]) for first in range(1, threads + 1)]
    with watch() as spent:
        for each in workers:
            each.start()
        for each in workers:
            each.join()
    if sum(moved) != rows:
        raise SystemExit(f"{sum(moved)} of {rows} rows were moved")
    return spent


# A round trip each line.
LOCKED = """BEGIN; SELECT id FROM {table} WHERE id = %s AND state = 'new' FOR NO KEY UPDATE
UPDATE {table} SET payload = 'y' WHERE id = %s
UPDATE {table} SET state = 'done', state_changed = statement_timestamp(), state_ready = false WHERE id = %s; COMMIT"""


def transition(model: Any, rows: int) -> Spent:
    """Run the chore of SQL transitions until it has moved all rows."""
    from benchmarks.claims import made
    from stator.db import chores
    from stator.worker.duties import MOVED_AT_ONCE

    fill(model, rows)
    operations = made(model)
    moved = 0
    with watch() as spent:
        while count := chores.move_matching(operations, MOVED_AT_ONCE).count:
            moved += count
    if moved != rows:
        raise SystemExit(f"{moved} of {rows} rows were moved")
    return spent


if __name__ == "__main__":
    main()
