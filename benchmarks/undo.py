"""The undo of a wrong move of many objects, alone and beside workers of the same model.

``python -m benchmarks.undo [--rows 100000] [--workers 8] [--repeat 3]``

All objects of a model with history are moved by hand to its last state, and go back. They are due in an hour, or at
once: then the workers attempt them while others are still going back.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from benchmarks.harness import arguments, database, make_tables
from benchmarks.harness import fill as fill_table
from benchmarks.report import Spent, Target, measure, note, show, watch

WORKER = """
import django; django.setup()
from benchmarks.models import KeptItem
from stator.runner import StatorRunner
from stator.worker.startup import collect_rarely
collect_rarely()
runner = StatorRunner([KeptItem], concurrency=100)
print("ready", flush=True)
runner.run()
"""

ALONE, LATER, NOW = "alone", "beside workers, due in an hour", "beside workers, due at once"
# Seconds that an undo may take, with its objects as a rate.
SECONDS = 10.0


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, quick={"rows": 2000, "workers": 2}, rows=100_000, workers=8)
    with database():
        from benchmarks.models import KeptItem

        make_tables(KeptItem)
        rows = options.rows
        sent: dict[str, int] = {}
        kinds = {ALONE: (0, False), LATER: (options.workers, False), NOW: (options.workers, True)}
        cases: dict[str, tuple[int, Callable[[], Spent]]] = {
            name: (rows, partial(undone, KeptItem, rows, workers, due, name, sent))
            for name, (workers, due) in kinds.items()
        }
        measured = measure(cases, options.repeat)
        least = Target(rows / SECONDS)
        show(
            f"Undo of {rows:,} moved objects, {options.workers} workers", "objects", measured,
            {LATER: (least,), NOW: (least,)},
        )  # fmt: skip
        for name, statements in sent.items():
            note(f"{name}: statements", statements, less=True)
            slowest = rows / min(run.rate for run in measured[name])
            print(f"  {name}: {slowest:.1f} s at most, {statements:,} statements by Django's cursors")


def undone(model: Any, rows: int, workers: int, due: bool, name: str, sent: dict[str, int]) -> Spent:
    """Measure the undo of a move of all rows, and note in ``sent`` how many statements it took."""
    from django.db import connection

    from stator.models import Action, Before, History
    from stator.undo import undo

    fill_table(model, rows)
    with connection.cursor() as cursor:
        for table in (History, Action, Before):
            cursor.execute(f"TRUNCATE {table._meta.db_table}")
        if not due:
            cursor.execute(
                f"UPDATE {model._meta.db_table} SET state_ready = false,"
                " state_next_attempt = statement_timestamp() + interval '1 hour'"
            )
        cursor.execute(f"VACUUM (ANALYZE) {model._meta.db_table}")
    if model.stator.all().move("done", actor="ada") != rows:
        raise SystemExit("not all objects were moved")
    took: list[object] = []

    def counted(execute: Callable[..., Any], *given: Any) -> Any:
        took.append(None)
        return execute(*given)

    action = Action.objects.get()
    with running(workers), watch() as spent, connection.execute_wrapper(counted):
        done = undo(action.pk, "default", actor="ada", reason="wrong state")
    if done.count != rows:
        raise SystemExit(f"{done.count} of {rows} objects went back")
    sent[name] = len(took)
    return spent


@contextmanager
def running(workers: int) -> Iterator[None]:
    """Run so many worker processes until the block ends."""
    with ExitStack() as stack:
        started = [
            subprocess.Popen([sys.executable, "-c", WORKER], env=dict(os.environ), stdout=subprocess.PIPE, text=True)
            for _ in range(workers)
        ]
        for process in started:
            stack.callback(process.wait, timeout=60)
            stack.callback(process.terminate)
        for process in started:
            if process.stdout is None or not process.stdout.readline():
                raise SystemExit("a worker ended; see above")
        yield


if __name__ == "__main__":
    main()
