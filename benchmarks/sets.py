"""Moving many objects without a call for each: batch handlers, atomic batches, SQL transitions, history.

``python -m benchmarks.sets [--rows 50000] [--repeat 3]``
"""

import time
from collections.abc import Callable
from typing import Any

from benchmarks.harness import arguments, database, fill, make_tables, own_cpu, print_table, server_cpu, spread


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, rows=50_000)
    with database():
        from benchmarks import models as m

        make_tables(m.AsyncItem, m.BatchItem, m.AtomicItem, m.AtomicBatchItem, m.SetItem, m.KeptSetItem)
        cases: dict[str, Callable[[], float]] = {
            "async handler, one object a call": lambda: drain(m.AsyncItem, options.rows, concurrency=500),
            "async handler, batch of 500": lambda: drain(m.BatchItem, options.rows),
            "atomic, one object a call": lambda: drain(m.AtomicItem, options.rows // 10) * 10,
            "atomic, batch of 500": lambda: drain(m.AtomicBatchItem, options.rows),
            "bare UPDATE by ranges of keys": lambda: bare_update(m.SetItem, options.rows),
            "SQL transition": lambda: transition(m.SetItem, options.rows),
            "SQL transition with history": lambda: transition(m.KeptSetItem, options.rows),
        }
        measured: dict[str, list[tuple[float, float, float]]] = {name: [] for name in cases}
        for _ in range(options.repeat):
            for name, case in cases.items():
                own, server = own_cpu(), server_cpu()
                seconds = case()
                cpu = [
                    (now - before) / options.rows * 1000 for now, before in ((own_cpu(), own), (server_cpu(), server))
                ]
                measured[name].append((options.rows / seconds, *cpu))
        lines = [
            [name, *(spread([run[column] for run in runs], 0 if column == 0 else 3) for column in range(3))]
            for name, runs in measured.items()
        ]
        head = ["case", "rows/s: median (least-most)", "CPU s per 1,000", "server CPU s per 1,000"]
        print_table(f"Moves of {options.rows:,} rows, one process", head, lines)


def drain(model: Any, rows: int, concurrency: int | None = None) -> float:
    """Seconds until a worker has moved all rows."""
    from stator.runner import StatorRunner

    fill(model, rows)
    started = time.perf_counter()
    summary = StatorRunner([model], until_idle=True, concurrency=concurrency).run()
    seconds = time.perf_counter() - started
    if summary.moved != {(model._meta.label_lower, "done"): rows}:
        raise SystemExit(f"not all of {rows} rows were moved: {summary}")
    return seconds


def bare_update(model: Any, rows: int) -> float:
    """Seconds to write the same columns with nothing around it: no locks taken first, no guard, no statistics.

    What this database can do at most with this table, to compare SQL transitions with.
    """
    from django.db import connection

    from stator.worker.duties import MOVED_AT_ONCE

    fill(model, rows)
    statement = f"""
        UPDATE {model._meta.db_table} SET state = 'done', state_changed = statement_timestamp(), state_ready = false,
          state_version = state_version + 1, state_attempts = 0, state_failures = 0, state_crashes = 0
        WHERE id > %s AND id <= %s"""
    started = time.perf_counter()
    moved = 0
    with connection.cursor() as cursor:
        for first in range(0, rows, MOVED_AT_ONCE):
            cursor.execute(statement, [first, first + MOVED_AT_ONCE])
            moved += cursor.rowcount
    seconds = time.perf_counter() - started
    if moved != rows:
        raise SystemExit(f"{moved} of {rows} rows were moved")
    return seconds


def transition(model: Any, rows: int) -> float:
    """Seconds until the chore of SQL transitions has moved all rows."""
    from benchmarks.claims import made
    from stator.db import chores
    from stator.worker.duties import MOVED_AT_ONCE

    fill(model, rows)
    operations = made(model)
    started = time.perf_counter()
    moved = 0
    while count := chores.move_matching(operations, MOVED_AT_ONCE).count:
        moved += count
    seconds = time.perf_counter() - started
    if moved != rows:
        raise SystemExit(f"{moved} of {rows} rows were moved")
    return seconds


if __name__ == "__main__":
    main()
