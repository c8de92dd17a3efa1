"""Chores on the framework's own tables: rows past their retention or no longer in force, and partitions.

Each does a bounded part in one short transaction. It is safe to run twice, on any worker, and concurrently.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from django.db.models import Case, Model, QuerySet, Value, When
from django.utils.module_loading import import_string

from stator.rows import columns
from stator.rows.keys import keys_of
from stator.rows.life import OF_LIFE, RESTS_AFTER, Life
from stator.rows.meta import model_of
from stator.rows.record_tables import RECORD_TABLES, RecordTable
from stator.rows.workers import WORKER_RETENTION
from stator.scopes import KEPT_UP, ends_in_parts, entered, keep_up

Record = TypeVar("Record", bound=Model)


class Sweep:
    """The deletion of one kind of records."""

    def __init__(self) -> None:
        # What was examined last in each database and schema, if there is more.
        self.last: dict[tuple[str, str], Any] = {}

    def part(self, alias: str, limit: int, age: float) -> int:
        """Examine the next ``limit`` records, which are kept for ``age`` seconds; return how many were deleted."""
        raise NotImplementedError

    def all(self, alias: str, limit: int, age: float) -> int:
        """Examine all records; return how many were deleted."""
        place = alias, entered()
        self.last.pop(place, None)
        total = self.part(alias, limit, age)
        while self.last.get(place):
            total += self.part(alias, limit, age)
        return total


def sweep_of(table: RecordTable) -> Sweep:
    """Return the sweep of a table that has one."""
    sweep: Sweep = import_string(table.sweep)
    return sweep


class Row(NamedTuple):
    """The life of an object, when it entered its state, and whether that is so long ago that nobody can undo it."""

    life: Life
    entered: datetime
    rests: bool


def with_rows(
    records: Iterable[Record], alias: str
) -> Iterator[tuple[type[Model] | None, list[tuple[Record, Row | None]]]]:
    """Yield each managed model, None for one that is gone, with the records of its objects and their rows."""
    label = attrgetter("model_label")
    for name, group in groupby(sorted(records, key=label), key=label):
        of_model: list[Any] = list(group)
        known = model_of(name)
        model = known if hasattr(known, "state_graph") else None
        rows = _rows_of(model, alias, {one.object_pk for one in of_model}) if model else {}
        yield model, [(one, rows.get(one.object_pk)) for one in of_model]


def _rows_of(model: type[Model], alias: str, pks: set[str]) -> dict[str, Row]:
    """Return what decides about the records of objects, by their keys as text."""
    rows: QuerySet[Model] = QuerySet(model, using=alias)
    rests = Case(When(state_changed__lte=columns.after(-RESTS_AFTER), then=Value(True)), default=Value(False))
    # Keys of another type, from before a migration, are of no object.
    keys = [key for key, _ in keys_of(model, pks)]
    read = rows.filter(pk__in=keys).values_list("pk", "state_changed", rests, *OF_LIFE)
    return {str(pk): Row(Life.of(*of_life), at, rested) for pk, at, rested, *of_life in read}


def prune(alias: str, limit: int, counts: Counter[tuple[str, str]] | None = None, /, **ages: float) -> int:
    """Delete records that are older than the seconds of what keeps them, up to ``limit`` of each; return how many.

    Also deletes rows of workers and pauses that ended long ago. Partitioned tables lose whole partitions, but not here.
    ``counts``: the numbers are added to it, by the label of the table and what ends its rows.
    """
    deleted = Counter[tuple[str, str]]()
    ages = _with_own(ages)
    for table in RECORD_TABLES:
        if not table.aged or ends_in_parts(table.model, alias):
            continue
        rows: QuerySet[Model] = QuerySet(table.model, using=alias)
        lookups = {f"{table.aged}__lt": columns.after(-ages[table.kept])}
        old = list(rows.filter(**lookups).values_list("pk", flat=True)[:limit])
        if old:
            deleted[table.model._meta.label_lower, table.kept] = rows.filter(pk__in=old).delete()[0]
    for table in RECORD_TABLES:
        if table.sweep:
            deleted[table.model._meta.label_lower, table.kept] = sweep_of(table).part(alias, limit, ages[table.kept])
    if counts is not None:
        counts += +deleted
    return deleted.total()


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
