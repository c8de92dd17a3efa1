"""How long one claim takes among 1,000 ready rows, in a small table and in large ones.

``python -m benchmarks.claims [--small 10000] [--large 1000000] [--largest 5000000] [--claims 50] [--repeat 3]``
"""

import statistics
import time
from typing import Any

from benchmarks.harness import arguments, database, fill, make_tables, print_table, spread
from benchmarks.report import note, print_targets, verdict


def main() -> None:
    """Measure and print."""
    quick = {"small": 2000, "large": 5000, "largest": 20_000, "claims": 5}
    options = arguments(__doc__, quick=quick, small=10_000, large=1_000_000, largest=5_000_000, claims=50)
    with database():
        from benchmarks.models import AsyncItem

        make_tables(AsyncItem)
        sizes = sorted({options.small, options.large, options.largest})
        taken: dict[int, list[float]] = {size: [] for size in sizes}
        empty: dict[int, list[float]] = {size: [] for size in sizes}
        # A table of millions takes long to fill, so all repetitions on it run together.
        for size in sizes:
            prepare(AsyncItem, size, ready=1000)
            milliseconds(AsyncItem, options.claims, limit=100)
            for _ in range(options.repeat):
                taken[size].append(milliseconds(AsyncItem, options.claims, limit=100))
                empty[size].append(look(AsyncItem, options.claims))
        lines = [[f"{size:,}", spread(taken[size], 2), spread(empty[size], 2)] for size in sizes]
        for size in sizes:
            note(f"claim in {size:,} rows, ms", statistics.median(taken[size]), less=True)
            note(f"look in {size:,} rows, ms", statistics.median(empty[size]), less=True)
        print_table(
            "Claim of 100 among 1,000 ready rows, and a look for work",
            ["rows in the table", "claim, ms: median (least-most)", "look, ms"],
            lines,
        )
        # The minimum: other load on the machine only ever makes a claim slower.
        base = min(taken[sizes[0]])
        print_targets([
            verdict(f"claim in {size:,} rows by that in {sizes[0]:,}", min(taken[size]) / base, 1.5, most=True)
            for size in sizes[1:]
        ])  # fmt: skip


def prepare(model: Any, size: int, ready: int) -> None:
    """Fill a table with ``size`` rows: ``ready`` of them are ready, spread over the table, and the rest are done."""
    from django.db import connection

    fill(model, size)
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE {model._meta.db_table} SET state = 'done', state_ready = false WHERE id %% %s <> 0 OR id > %s",
            [size // ready, size // ready * ready],
        )
        cursor.execute(f"VACUUM (ANALYZE) {model._meta.db_table}")


def milliseconds(model: Any, count: int, limit: int, exactly: bool = True) -> float:
    """Return the mean time of a claim that is rolled back, so that each claim finds the same rows.

    Set ``exactly`` to False if a worker claims at the same time and may leave fewer rows than the limit.
    """
    from django.db import transaction

    operations = made(model)
    states = list(operations.graph.automatic_states)
    total = 0.0
    for _ in range(count):
        with transaction.atomic():
            started = time.perf_counter()
            claims = operations.claim(states, limit)
            total += time.perf_counter() - started
            transaction.set_rollback(True)
        if exactly and len(claims) != limit:
            raise SystemExit(f"{len(claims)} rows were claimed instead of {limit}")
    return 1000 * total / count


def look(model: Any, count: int) -> float:
    """Return the mean time of the statement that checks whether there is anything to do."""
    from stator.db.probe import look as look_for_work

    operations = made(model)
    started = time.perf_counter()
    for _ in range(count):
        look_for_work(operations)
    return 1000 * (time.perf_counter() - started) / count


def made(model: Any) -> Any:
    """Return the operations that a worker uses on the model."""
    from stator.conf import load_settings
    from stator.db import operations_for
    from stator.db.interface import new_worker_id

    return operations_for(model, load_settings(), new_worker_id())


if __name__ == "__main__":
    main()
