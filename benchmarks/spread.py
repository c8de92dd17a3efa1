"""Spread models: what slices and partitions cost a drain, and claims in a very large table over 32 partitions.

By a field of the project, also what it costs that each claim is for one of few or very many values.

``python -m benchmarks.spread [--rows 60000] [--small 1000000] [--large 50000000] [--claims 50] [--tasks 3000]``
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.site")

from benchmarks.claims import milliseconds
from benchmarks.harness import apply, arguments, database, fill, make_tables, print_table, spread
from benchmarks.queues import cycles, publish, spent, work
from benchmarks.report import Spent, Target, measure, print_targets, show, verdict
from benchmarks.throughput import worker

ORDINARY, SPREAD, DIVIDED = "ordinary", "spread, one table", "spread, 8 partitions"
QUEUE, SPREAD_QUEUE = "publish, claim, resolve", "the same, spread over 8 partitions"
BATCHES, SPREAD_BATCHES = "claim, resolve by 100s", "the same by 100s, spread over 8 partitions"
QUEUE_TARGETS = {
    SPREAD_QUEUE: (Target(1.15, of=QUEUE, figure="cost", most=True),),
    SPREAD_BATCHES: (Target(1.15, of=BATCHES, figure="cost", most=True),),
}
TARGETS = {DIVIDED: (Target(1.15, of=ORDINARY, figure="cost", most=True),)}


def main() -> None:
    """Measure and print."""
    quick = {"rows": 2000, "small": 2000, "large": 10_000, "claims": 5, "tasks": 100}
    options = arguments(__doc__, quick=quick, rows=60_000, tasks=3000, small=1_000_000, large=50_000_000, claims=50)
    with database():
        from django.core.management import call_command

        from benchmarks.models import AsyncItem, DividedItem, FairItem, SpreadItem, TenantItem

        make_tables(AsyncItem, SpreadItem, DividedItem)
        divide(DividedItem, 8)
        rows = options.rows
        cases: dict[str, tuple[int, Callable[[], Spent]]] = {
            name: (rows, partial(worker, model, rows))
            for name, model in ((ORDINARY, AsyncItem), (SPREAD, SpreadItem), (DIVIDED, DividedItem))
        }
        show(f"Drain of {rows:,} rows, one process", "moves", measure(cases, options.repeat), TARGETS)
        make_tables(FairItem, TenantItem)
        divide(TenantItem, 8, by="tenant")
        for tenants in (20, rows // 5):
            values = {"tenant": f"n %% {tenants}"}
            cases = {
                name: (rows, partial(worker, model, rows, values=values))
                for name, model in (("fair_by alone", FairItem), ("spread, 8 partitions", TenantItem))
            }
            show(f"Drain of {rows:,} rows of {tenants:,} tenants", "moves", measure(cases, options.repeat), {})
        call_command("migrate", verbosity=0)
        tasks = options.tasks
        cases = {
            QUEUE: (tasks, lambda: cycles(tasks)),
            SPREAD_QUEUE: (tasks, partial(in_parts, lambda: cycles(tasks))),
            BATCHES: (tasks, lambda: spent(work, tasks, before=publish)),
            SPREAD_BATCHES: (tasks, partial(in_parts, lambda: spent(work, tasks, before=publish))),
        }
        show(f"Cycles of {tasks:,} tasks", "tasks", measure(cases, options.repeat), QUEUE_TARGETS)
        make_tables(AsyncItem, DividedItem)
        divide(DividedItem, 32)
        taken: dict[str, list[float]] = {}
        for model, size in ((AsyncItem, options.small), (DividedItem, options.large)):
            fill(model, size)
            milliseconds(model, options.claims, limit=500)
            name = f"{size:,} rows" + (", 32 partitions" if model is DividedItem else "")
            taken[name] = [milliseconds(model, options.claims, limit=500) for _ in range(options.repeat)]
        lines = [[name, spread(each, 2)] for name, each in taken.items()]
        print_table("Claim of 500 rows, where all rows are ready", ["table", "ms: median (least-most)"], lines)
        # The minimum: other load on the machine only ever makes a claim slower.
        base, large = map(min, taken.values())
        print_targets([verdict("claim in the large table by that in the small one", large / base, 1.2, most=True)])


def in_parts(case: Callable[[], Spent]) -> Spent:
    """Measure with a spread queue, while the table of tasks is divided."""
    from stator.migration_operations import Distribute
    from tasks.models import Queue

    operation = Distribute("tasks.Task", by="shard", partitions=8)
    Queue.objects.all().delete()
    Queue.objects.create(name="benchmark", actions_elsewhere=True, spread=True)
    apply(operation)
    try:
        return case()
    finally:
        apply(operation, backwards=True)
        Queue.objects.all().delete()


def divide(model: Any, partitions: int, by: str = "shard") -> None:
    """Divide a model's table, as a migration does."""
    from stator.migration_operations import Distribute

    apply(Distribute(model._meta.model_name, by=by, partitions=partitions))


if __name__ == "__main__":
    main()
