"""Sweeps: records that are in force for one visit or life of an object are deleted once they are not any more.

Each examines the records part after part, and goes on behind the last one in the next pass.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from django.core.exceptions import ValidationError
from django.db.models import Case, Model, QuerySet, Value, When
from django.utils.module_loading import import_string

from stator.rows import columns
from stator.rows.life import OF_LIFE, RESTS_AFTER, Life
from stator.rows.meta import model_of
from stator.rows.record_tables import RecordTable
from stator.scopes import entered

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
    found: Sweep = import_string(table.sweep)
    return found


class Row(NamedTuple):
    """The life of an object, when it entered its state, and whether that is so long ago that nobody can undo it."""

    life: Life
    entered: datetime
    rests: bool


def with_rows(records: Iterable[Record], alias: str) -> Iterator[tuple[Any, list[tuple[Record, Row | None]]]]:
    """Yield each managed model, None for one that is gone, with the records of its objects and their rows."""
    label = attrgetter("model_label")
    for name, group in groupby(sorted(records, key=label), key=label):
        of_model: list[Any] = list(group)
        known = model_of(name)
        model: Any = known if hasattr(known, "state_graph") else None
        rows = _rows_of(model, alias, {one.object_pk for one in of_model}) if model else {}
        yield model, [(one, rows.get(one.object_pk)) for one in of_model]


def _rows_of(model: Any, alias: str, pks: set[str]) -> dict[str, Row]:
    """Return what decides about the records of objects, by their keys as text."""
    rows: QuerySet[Any] = QuerySet(model, using=alias)
    rests = Case(When(state_changed__lte=columns.after(-RESTS_AFTER), then=Value(True)), default=Value(False))
    # Keys of another type, from before a migration, are of no object.
    with suppress(ValueError, ValidationError):
        found = rows.filter(pk__in=pks).values_list("pk", "state_changed", rests, *OF_LIFE)
        return {str(pk): Row(Life.of(*of_life), at, rested) for pk, at, rested, *of_life in found}
    return {}
