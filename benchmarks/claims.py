"""How long one claim takes among 1,000 ready rows, in a small table and in a large one.

``python -m benchmarks.claims [--small 10000] [--large 1000000] [--claims 50] [--repeat 3]``
"""

import time
from typing import Any

from benchmarks.harness import arguments, database, fill, make_tables, print_table, spread


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, small=10_000, large=1_000_000, claims=50)
    with database():
        from benchmarks.models import AsyncItem

        make_tables(AsyncItem)
        sizes = (options.small, options.large)
        taken: dict[int, list[float]] = {size: [] for size in sizes}
        empty: dict[int, list[float]] = {size: [] for size in sizes}
        for _ in range(options.repeat):
            for size in sizes:
                prepare(AsyncItem, size, ready=1000)
                taken[size].append(milliseconds(AsyncItem, options.claims, limit=100))
                empty[size].append(look(AsyncItem, options.claims))
        base = min(taken[options.small])
        lines = [
            [f"{size:,}", spread(taken[size], 2), f"{min(taken[size]) / base:.2f}", spread(empty[size], 2)]
            for size in sizes
        ]
        print_table(
            "Claim of 100 among 1,000 ready rows, and a look for work",
            ["rows in the table", "claim, ms: median (least-most)", "ratio of the least", "look, ms"],
            lines,
        )


def prepare(model: Any, size: int, ready: int) -> None:
    """A table of that many rows, of which some are ready, spread over the table, and the others are done."""
    from django.db import connection

    fill(model, size)
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE {model._meta.db_table} SET state = 'done', state_ready = false WHERE id %% %s <> 0",
            [size // ready],
        )
        cursor.execute(f"VACUUM (ANALYZE) {model._meta.db_table}")


def milliseconds(model: Any, count: int, limit: int) -> float:
    """Mean time of a claim that is rolled back, so that each finds the same rows."""
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
        if len(claims) != limit:
            raise SystemExit(f"{len(claims)} rows were claimed instead of {limit}")
    return 1000 * total / count


def look(model: Any, count: int) -> float:
    """Mean time of the statement that asks whether there is anything to do."""
    from stator.db.look import look as look_for_work

    operations = made(model)
    started = time.perf_counter()
    for _ in range(count):
        look_for_work(operations)
    return 1000 * (time.perf_counter() - started) / count


def made(model: Any) -> Any:
    """The operations that a worker uses on the model."""
    from stator.conf import load_settings
    from stator.db import operations_for
    from stator.db.claim import new_worker_id

    return operations_for(model, load_settings(), new_worker_id())


if __name__ == "__main__":
    main()
