"""The indexes that come with the mixin. Each names the statement that it serves; all are partial."""

import hashlib
import re

from django.db.models import Expression, F, Index, Model, Q
from django.db.models.functions import Coalesce

from stator.rows.dates import Deadline, RowDate, deadlines_of, starts_of
from stator.rows.keys import key_names
from stator.rows.meta import field_of, options_of
from stator.rows.priorities import priority_of
from stator.rows.spread import is_in_one_line, spread_field
from stator.rows.state_column import state_field


def place_in_line() -> Coalesce:
    """Return the order of claims by age: by when rows became due, or else by when they entered their state."""
    return Coalesce(F("state_next_attempt"), F("state_changed"))


def line_of(model: type[Model], *, by_age: bool = False) -> list[Expression | F]:
    """Return the claim order of ready rows with one value of ``fair_by``; ``by_age``: ignore priorities."""
    options, priority = options_of(model), priority_of(model)
    first: list[Expression | F] = [priority.expression] if priority and not by_age else []
    then = [options.then] if options.then and first else []
    return [*first, *then, place_in_line(), *map(F, key_names(model))]


def line_of_all(model: type[Model], *, by_age: bool = False) -> list[Expression | F]:
    """Return :func:`line_of` for all values of ``spread`` and ``fair_by``, one after the other."""
    options = options_of(model)
    spread = spread_field(model)
    names = [options.fair_by, None if spread and is_in_one_line(spread) else options.spread]
    first = {field_of(model, name): F(name) for name in names if name}
    # A column may be part of the key as well, and MariaDB takes it once in an index.
    twice = [F(name) for name in key_names(model) if field_of(model, name) in first]
    return [*reversed(first.values()), *(part for part in line_of(model, by_age=by_age) if part not in twice)]


def add_indexes(model: type[Model]) -> None:
    """Add the indexes of the mixin to the indexes that the model declares."""
    indexes = [*model._meta.indexes, *own_indexes(model)]
    model._meta.indexes = indexes
    # Migrations read the declared options only.
    model._meta.original_attrs["indexes"] = indexes


def own_indexes(model: type[Model]) -> list[Index]:
    """Return the mixin's indexes for a managed model, with unique names."""
    table = model._meta.db_table
    readable = re.sub(r"[^a-z0-9]+", "_", table.lower())[:12].strip("_")
    suffix = f"{readable}_{hashlib.sha256(table.encode()).hexdigest()[:6]}"
    aged = [_aged(model, suffix)] if options_of(model).priority else []
    return [
        _ready(model, suffix),
        *aged,
        _unheld(model, suffix),
        _leased(suffix),
        _crashed(suffix),
        _failing(model, suffix),
        *(_dated(model, date, suffix) for date in (*deadlines_of(model), *starts_of(model))),
    ]


def _ready(model: type[Model], suffix: str) -> Index:
    """Return the index for CLAIM: the ready rows in the order of their turn; claimed rows leave it."""
    return Index(*line_of_all(model), condition=Q(state_ready=True), name=f"st_ready_{suffix}")


def _aged(model: type[Model], suffix: str) -> Index:
    """Return the index for CLAIM by age, if there are priorities: the ready rows in the order of their age."""
    return Index(*line_of_all(model, by_age=True), condition=Q(state_ready=True), name=f"st_age_{suffix}")


def _unheld(model: type[Model], suffix: str) -> Index:
    """Return the index for MARK READY, TIME OUT and DELETE: rows neither held nor ready, by state and due time.

    External and terminal states have no due time, so their rows are ordered by when they entered the state.
    """
    unheld = Q(state_ready=False, state_claim__isnull=True)
    fields = [state_field(model).name, "state_next_attempt", "state_changed"]
    return Index(fields=fields, condition=unheld, name=f"st_rest_{suffix}")


def _leased(suffix: str) -> Index:
    """Return the index for REAP: the held rows by the end of their lease."""
    return Index(fields=["state_locked_until"], condition=Q(state_claim__isnull=False), name=f"st_lease_{suffix}")


def _crashed(suffix: str) -> Index:
    """Return the index for CLAIM of rows that lost leases, and for quarantine: nearly always empty."""
    return Index(fields=["state_crashes"], condition=Q(state_crashes__gt=0), name=f"st_crash_{suffix}")


def _failing(model: type[Model], suffix: str) -> Index:
    """Return the index for lists and counts of rows whose latest attempt failed; other rows never enter it.

    It starts with the errors although they are its condition: for an OR, SQLite joins two indexes only by a column of
    each.
    """
    failed = Q(state_failures__gt=0)
    return Index(fields=["state_failures", *key_names(model)], condition=failed, name=f"st_fail_{suffix}")


def _dated(model: type[Model], date: RowDate, suffix: str) -> Index:
    """Return the index for TIME OUT or MARK READY by a date: the rows of one state that wait for it, by their date.

    It begins with what they have in common for databases without partial indexes.
    """
    state = state_field(model)
    kind = hashlib.sha256(f"{date.state.name} {date.source}".encode()).hexdigest()[:3]
    where, first, name = Q(state_claim__isnull=True, **state.at(date.state)), [state.name], f"st_at_{kind}_{suffix}"
    if not isinstance(date, Deadline):
        where &= Q(state_ready=False, state_next_attempt__isnull=True)
        first, name = [*first, "state_next_attempt"], f"st_try_{kind}_{suffix}"
    if date.column:
        return Index(fields=[*first, date.column], condition=where, name=name)
    return Index(*map(F, first), date.date, condition=where, name=name)
