"""Chores on the framework's own tables: rows past their retention, and partitions.

Each does a bounded part in one short transaction. It is safe to run twice, on any worker, and concurrently.
"""

from collections import Counter
from typing import Any

from django.db.models import QuerySet

from stator.db.sweeps import sweep_of
from stator.rows import columns
from stator.rows.record_tables import RECORD_TABLES
from stator.rows.workers import WORKER_RETENTION
from stator.scopes import KEPT_UP, ends_in_parts, keep_up


def prune(alias: str, limit: int, counts: Counter[tuple[str, str]] | None = None, /, **ages: float) -> int:
    """Delete records that are older than the seconds of what keeps them, up to ``limit`` of each; return how many.

    Also deletes rows of workers and pauses that ended long ago. Partitioned tables lose whole partitions, but not here.
    ``counts``: the numbers are added to it, by the label of the table and what ends its rows.
    """
    found = Counter[tuple[str, str]]()
    ages = _with_own(ages)
    for table in RECORD_TABLES:
        if not table.aged or ends_in_parts(table.model, alias):
            continue
        rows: QuerySet[Any] = QuerySet(table.model, using=alias)
        lookups = {f"{table.aged}__lt": columns.after(-ages[table.kept])}
        old = list(rows.filter(**lookups).values_list("pk", flat=True)[:limit])
        if old:
            found[table.model._meta.label_lower, table.kept] = rows.filter(pk__in=old).delete()[0]
    for table in RECORD_TABLES:
        if table.sweep:
            found[table.model._meta.label_lower, table.kept] = sweep_of(table).part(alias, limit, ages[table.kept])
    if counts is not None:
        counts += +found
    return found.total()


def prune_all(alias: str, limit: int, **ages: float) -> int:
    """Call :func:`prune` until nothing more is to be deleted; return how many rows were."""
    total = 0
    while deleted := prune(alias, limit, **ages):
        total += deleted
    # A part with nothing to delete may come before another one.
    ages = _with_own(ages)
    return total + sum(sweep_of(table).all(alias, limit, ages[table.kept]) for table in RECORD_TABLES if table.sweep)


def keep_up_all(alias: str, **ages: float) -> int:
    """Make partitions ahead, and drop those older than the given seconds; return how many changed.

    Call it outside of a transaction, so that no lock on a whole table lasts longer than one change.
    """
    divided = [table for table in RECORD_TABLES if hasattr(table.model, "PARTITION_COLUMN")]
    own = sum(keep_up(table.model, alias, ages[table.kept]) for table in divided)
    return own + sum(kept_up(alias) for kept_up in KEPT_UP)


def _with_own(ages: dict[str, float]) -> dict[str, float]:
    """Add what no setting says."""
    return {**ages, "workers": WORKER_RETENTION, "": 0.0}
