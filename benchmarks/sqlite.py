"""How many objects one worker process moves per second on SQLite, in a file of its own.

``python -m benchmarks.sqlite [--rows 20000] [--repeat 3]``
"""

from benchmarks.harness import arguments, database, make_tables
from benchmarks.report import Target, measure, show
from benchmarks.throughput import worker

ASYNC, SYNC, BATCH = "async", "sync", "batch of 500"
TARGETS = {ASYNC: (Target(10_000),)}


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, quick={"rows": 1000}, rows=20_000)
    with database("sqlite"):
        from benchmarks import models as m

        make_tables(m.AsyncItem, m.SyncItem, m.BatchItem)
        rows = options.rows
        cases = {
            ASYNC: (rows, lambda: worker(m.AsyncItem, rows, 500)),
            SYNC: (rows, lambda: worker(m.SyncItem, rows, 500)),
            BATCH: (rows, lambda: worker(m.BatchItem, rows)),
        }
        show(f"Drain of {rows:,} rows, one process", "moves", measure(cases, options.repeat), TARGETS)


if __name__ == "__main__":
    main()
