"""What the rows of a table have in a column: how many of each value, how old, and how many nothing moves.

At most a number of rows is read, within a time. If that is not the whole table, the answer says which rows it is.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from time import monotonic

from django.db import DatabaseError
from django.db.models import Count, DateTimeField, Max, Min, Model, Q, QuerySet

from stator.commands.answer import BadInput
from stator.db.looks import bounded
from stator.db.retry import is_cut_short
from stator.extensions.adopt.target import Stored, Target
from stator.graph.durations import seconds_of, span
from stator.rows.clock import Elapsed, Now
from stator.texts import nearest

# The most values that a status has. The parts of the rows that are tried, one after the other, within the time.
MAX_VALUES, PARTS = 50, (1, 20, 400)

# Names of columns with the time of the last change, the best first; the name of the status may be before them.
CHANGED = ("{column}_changed_at", "{column}_changed", "{column}_updated_at", "{column}_since", "{column}_at")
UPDATED = ("updated", "modified", "changed", "last_update", "touched")
CREATED = ("created", "added", "inserted", "date_joined", "submitted")


@dataclass(frozen=True)
class TimeColumn:
    """The column that ages are read from; ``means`` says since when they count."""

    name: str
    means: str


@dataclass(frozen=True)
class ValueCount:
    """The rows with one value. Ages are in seconds; None if there is no time of any of them.

    ``unmoved``: how many have an age of at least the given time. ``cut``: the table may have more such rows.
    """

    value: Stored
    rows: int
    oldest: float | None
    newest: float | None
    unmoved: int | None
    cut: bool = False

    @property
    def shown(self) -> str:
        """The number of rows for people."""
        return f"{self.rows:,}{'+' * self.cut} row{'' if self.rows == 1 else 's'}"


@dataclass(frozen=True)
class TableLook:
    """What was read: ``read`` rows; ``whole`` says whether these are all. ``least``: the table has at least so many."""

    values: list[ValueCount]
    clock: TimeColumn | None
    read: int
    least: int
    whole: bool
    seconds: float


def clock_of(target: Target, name: str | None) -> TimeColumn | None:
    """Return the best column with a time, or the named one; None if there is none."""
    fields = [each for each in target.model._meta.concrete_fields if isinstance(each, DateTimeField)]
    if name is not None:
        if name not in (names := [field.name for field in fields]):
            hint = nearest(name, names, noun="such columns") if names else "the table has none"
            raise BadInput(f"--by {name!r} is not a DateTimeField of {target.model._meta.label}; {hint}")
        return TimeColumn(name, "the given column")
    return next(_clocks(target.column, fields), None)


def _clocks(column: str, fields: list[DateTimeField]) -> Iterator[TimeColumn]:
    """Yield the columns with a time, the best first."""
    changed = {name.format(column=column) for name in CHANGED}
    for field in fields:
        if field.name in changed:
            yield TimeColumn(field.name, f"since {column} changed, by its name")
    for field in fields:
        if field.auto_now:
            yield TimeColumn(field.name, "since the last save of the row; update() may leave it out")
        elif any(word in field.name for word in UPDATED):
            yield TimeColumn(field.name, "since the row was last changed, by its name")
    for field in fields:
        if field.auto_now_add or any(word in field.name for word in CREATED):
            yield TimeColumn(field.name, "since the row was created, not since it moved")
    for field in fields:
        if not field.null:
            yield TimeColumn(field.name, "the only time that every row has")


def look_at_rows(
    target: Target, using: str, *, clock: TimeColumn | None, idle: float, most: int, seconds: float
) -> TableLook:
    """Return the counts of at most ``most`` rows, in statements of at most ``seconds`` each.

    If the time is not enough, fewer rows are read; if it is not enough for the last part either, this is refused.
    """
    began = monotonic()
    for part in PARTS:
        try:
            with bounded(using, lock=seconds, most=seconds):
                rows, whole, limit = _within(target.model, using, max(2, most // part))
                values = _counted(rows, target.column, clock, idle, cut=not whole)
        except DatabaseError as error:
            if not is_cut_short(error):
                raise
            continue
        if len(values) > MAX_VALUES:
            raise BadInput(f"{target.label} has more than {MAX_VALUES} values, so it is no status; name another column")
        read = sum(each.rows for each in values)
        return TableLook(values, clock, read, read if whole else limit + 1, whole, monotonic() - began)
    raise BadInput(f"{target.label} could not be read in {span(seconds)}; give more time by --seconds")


def _within(model: type[Model], using: str, most: int) -> tuple[QuerySet[Model], bool, int]:
    """Return all rows, or the first and the last half of ``most`` in the order of their keys, and whether it is all."""
    rows: QuerySet[Model] = QuerySet(model, using=using)
    keys = rows.order_by("pk").values_list("pk", flat=True)
    if not keys[most : most + 1]:
        return rows, True, most
    half = most // 2
    [below], [above] = keys[half : half + 1], keys.reverse()[half - 1 : half]
    return rows.filter(Q(pk__lt=below) | Q(pk__gte=above)), False, most


def _counted(
    rows: QuerySet[Model], column: str, clock: TimeColumn | None, idle: float, *, cut: bool
) -> list[ValueCount]:
    by_value = rows.order_by().values_list(column).annotate(stator_rows=Count("*"))
    if clock is None:
        counts = by_value.order_by("-stator_rows", column)[: MAX_VALUES + 1]
        return [ValueCount(value, number, None, None, None, cut) for value, number in counts]
    since = Q(**{f"{clock.name}__lte": Now() - timedelta(seconds=idle)})
    timed = by_value.annotate(
        stator_oldest=Elapsed(Min(clock.name)),
        stator_newest=Elapsed(Max(clock.name)),
        stator_unmoved=Count("pk", filter=since),
    )
    return [
        ValueCount(value, number, _age(oldest), _age(newest), unmoved, cut)
        for value, number, oldest, newest, unmoved in timed.order_by("-stator_rows", column)[: MAX_VALUES + 1]
    ]


def _age(age: timedelta | int | None) -> float | None:
    return None if age is None else seconds_of(age)
