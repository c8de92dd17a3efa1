"""History in partitions: what a record costs, and claims while a month of history is dropped.

``python -m benchmarks.partitions [--events 1000000] [--seconds 10] [--rows 20000]``

A drain with history runs in turns on an ordinary table and on one with partitions. Then a worker moves objects with
history for ever, and a month of ``--events`` events is dropped: its claims in the ``--seconds`` from the drop on are
compared with those just before, which are compared with those before them, to show how much they differ by themselves.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.churn import wait_for_first
from benchmarks.harness import apply, arguments, database, fill, make_tables, print_table, spread
from benchmarks.report import Spent, Target, measure, print_targets, show, verdict
from benchmarks.throughput import worker

# A worker that writes when each of its claims and records began, and how long it took.
WORKER = """
import json, sys, time, django; django.setup()
from benchmarks.models import KeptLoopItem
from stator.db.claims import Claims
from stator.db.records import Records
from stator.runner import StatorRunner
from stator.worker.startup import collect_rarely
collect_rarely()
taken = {"claim": [], "record": []}
def timed(kind, call):
    def measured(*given, **named):
        began = time.monotonic()
        try:
            return call(*given, **named)
        finally:
            taken[kind].append((began, time.monotonic() - began))
    return measured
Claims.claim = timed("claim", Claims.claim)
Records.record_batch = timed("record", Records.record_batch)
StatorRunner([KeptLoopItem], concurrency=50).run()
open(sys.argv[1], "w").write(json.dumps(taken))
"""

# How often the drop is tried.
TRIES = 100

ORDINARY, PARTITIONS = "ordinary table", "partitions"

FILL = """
INSERT INTO filled (model_label, object_pk, at, version, kind, source, "to", actor, reason, worker, claimed,
  duration, stay, attempts, error, fingerprint)
SELECT 'benchmarks.keptloopitem', (n %% 100000)::text, %s::timestamptz + n * (%s::interval / %s), n / 100000, 'move',
  'new', 'other', '', '', 'abcdef123456', %s::timestamptz, 0.001, 1.0, 1, '', '' FROM generate_series(0, %s - 1) n
"""

DEAD = """
SELECT coalesce(sum(n_dead_tup), 0) FROM pg_stat_user_tables WHERE starts_with(relname, 'stator_history')
"""


def main() -> None:
    """Measure and print."""
    quick = {"events": 2000, "seconds": 1, "rows": 200}
    options = arguments(__doc__, quick=quick, events=1_000_000, seconds=10, rows=20_000)
    with database():
        from benchmarks.models import KeptItem, KeptLoopItem

        make_tables(KeptItem, KeptLoopItem)
        rows = options.rows
        drains: dict[str, tuple[int, Callable[[], Spent]]] = {
            name: (rows, partial(drain, KeptItem, rows, name)) for name in (ORDINARY, PARTITIONS)
        }
        targets = {PARTITIONS: (Target(0.95, of=ORDINARY),)}
        show(f"Drain of {rows:,} rows with history", "moves", measure(drains, options.repeat), targets)
        convert()
        rounds = [dropped(KeptLoopItem, options) for _ in range(options.repeat)]
        head = ["figure", "before that", "before", "from the drop on", "ratio, by itself", "ratio, drop"]
        title = f"Dropping a month of {options.events:,} events under load, ms"
        print_table(title, head, [line(kind, rounds) for kind in ("claim", "record")])
        seconds, dead = [each["seconds"] for each in rounds], [each["dead"] for each in rounds]
        print(f"seconds of the drop: {spread(seconds, 3)}; dead rows it left: {max(dead)}")
        moved = statistics.median(each["claim"][2] / each["claim"][1] for each in rounds)
        limits = {
            "seconds of the drop": (max(seconds), 2),
            "p99 of claims from the drop on by that before": (moved, 1.1),
        }
        print_targets([verdict(name, value, bound, most=True) for name, (value, bound) in limits.items()])


def drain(model: Any, rows: int, kind: str) -> Spent:
    """Measure a worker with history in an ordinary or in a partitioned table."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE stator_history")
    convert(backwards=kind == ORDINARY)
    return worker(model, rows)


def convert(*, backwards: bool = False) -> None:
    """Convert the table of the history, as a migration does."""
    from stator.migration_operations import PartitionByTime

    apply(PartitionByTime("stator.History", "month"), backwards=backwards)


def dropped(model: Any, options: Any) -> dict[str, Any]:
    """Return a round: seconds of the drop, dead rows, and p99 of claims and records before it and from it on."""
    from django.db import connection

    from stator.extensions.partitions.upkeep import maintain
    from stator.models import History

    keep = fill_month(options.events)
    fill(model, 2000)
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "taken.json")
        with working(output):
            wait_for_first(model)
            marks = []
            for _ in range(2):
                marks.append(time.monotonic())
                threading.Event().wait(options.seconds)
            marks.append(began := time.monotonic())
            # Workers try again at a later pass if they do not get the lock.
            changed = next((made for _ in range(TRIES) if (made := maintain(History, "default", keep))), 0)
            took = time.monotonic() - began
            threading.Event().wait(max(0.0, options.seconds - took))
            marks.append(time.monotonic())
        taken = json.loads(output.read_text())
    if changed != 1:
        raise SystemExit(f"{changed} partitions were dropped, not 1")
    with connection.cursor() as cursor:
        cursor.execute(DEAD)
        [dead] = cursor.fetchone()
    found = {kind: [p99(taken[kind], *marks[part : part + 2]) for part in range(3)] for kind in taken}
    return {"seconds": took, "dead": int(dead), **found}


def fill_month(events: int) -> float:
    """Make the partition of a month that is over, and fill it; return the age in seconds from which it is past."""
    from django.db import connection
    from django.utils import timezone

    from stator.extensions.partitions.tables import following, read, start_of
    from stator.extensions.partitions.upkeep import creation
    from stator.models import History

    table = read(History, "default")
    if table is None:
        raise SystemExit("the table of the history has no partitions")
    lower = start_of(start_of(timezone.now(), "month") - timedelta(days=70), "month")
    upper = following(lower, "month")
    with connection.cursor() as cursor:
        # The first partition takes all that was before; here it has nothing that is needed.
        for each in table.partitions:
            if each.upper and not each.lower:
                cursor.execute(f"DROP TABLE {connection.ops.quote_name(each.name)}")
                current = start_of(timezone.now(), "month")
                cursor.execute(creation(connection, table.place, (current, following(current, "month"))))
        # Its indexes are built at the end, which takes a tenth of the time.
        cursor.execute("SET maintenance_work_mem = '512MB'")
        cursor.execute("CREATE TABLE filled (LIKE stator_history INCLUDING DEFAULTS INCLUDING IDENTITY)")
        cursor.execute(FILL, [lower, f"{(upper - lower).days} days", events, lower, events])
        cursor.execute("ALTER TABLE filled ALTER COLUMN id DROP IDENTITY")
        cursor.execute(
            "ALTER TABLE stator_history ATTACH PARTITION filled FOR VALUES FROM (%s) TO (%s)", [lower, upper]
        )
        # Autovacuum has been there long before a month is past, and would hold the partition now.
        cursor.execute("VACUUM (ANALYZE) filled")
        cursor.execute("TRUNCATE stator_stats")
        cursor.execute("CHECKPOINT")
    return (timezone.now() - upper).total_seconds()


@contextmanager
def working(output: Path) -> Iterator[None]:
    """Run a worker until the block ends; it writes its times to ``output``."""
    process = subprocess.Popen([sys.executable, "-c", WORKER, str(output)], env=dict(os.environ))
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=60)


def p99(taken: list[tuple[float, float]], start: float, end: float) -> float:
    """Return the 99th percentile, in milliseconds, of what began between two moments."""
    took = sorted(seconds for began, seconds in taken if start <= began < end)
    return 1000 * took[int(len(took) * 0.99)] if took else float("nan")


def line(kind: str, rounds: list[dict[str, Any]]) -> list[str]:
    """Return a row of the printed table."""
    columns = list(zip(*(each[kind] for each in rounds), strict=True))
    first, second, third = columns
    return [
        f"p99 of a {kind}",
        *(spread(list(each), 2) for each in columns),
        spread([b / a for a, b in zip(first, second, strict=True)], 2),
        spread([b / a for a, b in zip(second, third, strict=True)], 2),
    ]


if __name__ == "__main__":
    main()
