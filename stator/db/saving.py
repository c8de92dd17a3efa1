"""The fields that a handler sets and its state ``saves``, as part of the one statement that records on PostgreSQL."""

import re
from typing import Any

from stator.db.written import Ended

# Of these an array can be sent and taken apart again without a change of the values.
PLAIN_TYPES = {
    "bigint", "boolean", "date", "double precision", "integer", "interval", "jsonb", "smallint", "text",
    "timestamp with time zone", "uuid",
}  # fmt: skip
_LIMITED_TEXT = re.compile(r"varchar(\(\d+\))?$")


def names_saved(group: list[Ended]) -> tuple[str, ...]:
    """The fields to write for outcomes of one kind; none where no handler got so far."""
    names: tuple[str, ...] = group[0][0].state.saves
    # Most states save nothing; then their outcomes need not be looked at.
    return names if names and any(outcome.values for _, outcome in group) else ()


def array_types(model: Any, connection: Any, names: tuple[str, ...]) -> list[str] | None:
    """The type of each field's column without its limit, which a cast would cut to; None where one is not plain."""
    if model._meta.parents:
        return None
    types = [_LIMITED_TEXT.sub("text", model._meta.get_field(name).rel_db_type(connection) or "") for name in names]
    return types if set(types) <= PLAIN_TYPES else None


def saved_arrays(model: Any, connection: Any, group: list[Ended], names: tuple[str, ...]) -> list[list[Any]]:
    """Which outcomes have values at all, then for each field the values of all."""
    values = [outcome.values for _, outcome in group]
    arrays: list[list[Any]] = [[given is not None for given in values]]
    for name in names:
        prepare = model._meta.get_field(name).get_db_prep_save
        arrays.append([None if given is None else prepare(given[name], connection) for given in values])
    return arrays


def has_expressions(group: list[Ended]) -> bool:
    """Whether a handler set something that only the database can work out."""
    return any(
        hasattr(value, "resolve_expression") for _, outcome in group for value in (outcome.values or {}).values()
    )
