"""Values of the fields that a state ``saves``, as part of PostgreSQL's recording statement."""

import re
from typing import Any

from stator.db.written import Ended

# Types whose values an array carries without a change.
PLAIN_TYPES = {
    "bigint", "boolean", "date", "double precision", "integer", "interval", "jsonb", "smallint", "text",
    "timestamp with time zone", "uuid",
}  # fmt: skip
_LIMITED_TEXT = re.compile(r"varchar(\(\d+\))?$")


def names_saved(group: list[Ended]) -> tuple[str, ...]:
    """Return the fields to write for outcomes of one kind; none if no outcome has values."""
    names: tuple[str, ...] = group[0][0].state.saves
    # Most states save nothing, so their outcomes need not be checked.
    return names if names and any(outcome.values for _, outcome in group) else ()


def array_types(model: Any, connection: Any, names: tuple[str, ...]) -> list[str] | None:
    """Return the type of each field's column without its limit, to which a cast would cut; None if one is not plain."""
    if model._meta.parents:
        return None
    types = [_LIMITED_TEXT.sub("text", model._meta.get_field(name).rel_db_type(connection) or "") for name in names]
    return types if set(types) <= PLAIN_TYPES else None


def saved_arrays(model: Any, connection: Any, group: list[Ended], names: tuple[str, ...]) -> list[list[Any]]:
    """Return an array of flags for outcomes with values, then one array of values for each field."""
    values = [outcome.values for _, outcome in group]
    arrays: list[list[Any]] = [[given is not None for given in values]]
    for name in names:
        prepare = model._meta.get_field(name).get_db_prep_save
        arrays.append([None if given is None else prepare(given[name], connection) for given in values])
    return arrays


def has_expressions(group: list[Ended]) -> bool:
    """Return whether a handler set an expression that only the database can evaluate."""
    return any(
        hasattr(value, "resolve_expression") for _, outcome in group for value in (outcome.values or {}).values()
    )
