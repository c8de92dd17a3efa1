"""Fields that a handler changes and does not save: looked for in the first attempts of each state, and told once."""

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from typing import Any, NamedTuple

from django.db import DatabaseError, InterfaceError
from django.db.models import Field, Model, QuerySet

from stator.db.interface import Claim, Operations
from stator.exceptions import PROJECT_ERRORS
from stator.graph import State
from stator.graph.outcomes import Outcome
from stator.graph.states import LOOKS
from stator.rows.columns import FRAMEWORK_COLUMNS

logger = logging.getLogger("stator.worker")

REMEDY = "name them in State(saves=[...]), or call save() in the handler"


class Unsaved(NamedTuple):
    """One object that its handler has changed, in a state, and the fields that are not stored."""

    operations: Operations
    state: State
    pk: object
    fields: str

    def __str__(self) -> str:
        place = f"{self.state.graph.__name__}.{self.state.name}"
        return f"{place}: the handler changed {self.fields} of {self.operations.label} {self.pk}, not saved; {REMEDY}"


# What is found goes into this list, where there is one, in place of the log.
_found: ContextVar[list[Unsaved] | None] = ContextVar("stator_unsaved", default=None)


@contextmanager
def collected(states: Sequence[State]) -> Iterator[list[Unsaved]]:
    """Yield a list that gets what is found in the next attempts of each state."""
    before = [state.looks for state in states]
    found: list[Unsaved] = []
    token = _found.set(found)
    for state in states:
        state.looks = LOOKS
    try:
        yield found
    finally:
        _found.reset(token)
        for state, looks in zip(states, before, strict=True):
            state.looks = looks


def note_before(claim: Claim) -> None:
    """Note the values of an object before its handler is called."""
    claim.state.looks -= 1
    claim.before = {name: _copied(value) for name, value in _own_values(claim)}


def note_after(claim: Claim, outcome: Outcome) -> None:
    """Note the values that differ after the handler, each with its value before and now."""
    before, claim.before = claim.before or {}, None
    if outcome.failure is None and claim.pk == claim.instance.pk:
        claim.changed = {
            name: (before[name], value)
            for name, value in _own_values(claim)
            if name in before and value is not before[name] and _differ(before[name], value)
        }


def tell_unsaved(operations: Operations, claims: Sequence[Claim]) -> None:
    """Find the changed values that are not stored, and tell them once for each state; call it after the commit."""
    by_state: dict[State, list[Claim]] = defaultdict(list)
    for claim in claims:
        by_state[claim.state].append(claim)
    for state, changed in by_state.items():
        try:
            unsaved = _look(operations, state, changed)
        except (DatabaseError, InterfaceError) as error:
            # The attempts are recorded; a later one is looked at.
            logger.debug("stator.not_looked", extra={"model": operations.label, "error": type(error).__name__})
            continue
        if unsaved is None:
            continue
        if (found := _found.get()) is not None:
            found.append(unsaved)
            continue
        state.looks = 0
        fields = {"model": operations.label, "state": state.name, "pk": str(unsaved.pk), "fields": unsaved.fields}
        logger.warning("stator.not_saved", extra=fields | {"remedy": REMEDY})


def _look(operations: Operations, state: State, claims: list[Claim]) -> Unsaved | None:
    """Return the first object with a changed value that is stored as it was before."""
    names = {name: _field_of(operations.model, name) for claim in claims for name in claim.changed}
    rows: QuerySet[Model] = QuerySet(operations.model, using=operations.alias)
    # Whoever has claimed an object meanwhile may have written it.
    free = rows.filter(pk__in=[claim.pk for claim in claims], state_claim=None)
    with operations.reading():
        stored = {row["pk"]: row for row in free.values("pk", *names)}
    for claim in claims:
        row = stored.get(claim.pk)
        lost = [
            name for name, (before, now) in claim.changed.items()
            if row and not hasattr(now, "resolve_expression")
            and not _differ_stored(names[name], row[name], before) and _differ_stored(names[name], before, now)
        ]  # fmt: skip
        if lost:
            return Unsaved(operations, state, claim.pk, ", ".join(names[name].name for name in lost))
    return None


def _own_values(claim: Claim) -> Iterator[tuple[str, Any]]:
    """Yield the values of the model's own fields that the instance has loaded."""
    loaded = vars(claim.instance)
    for field in claim.operations.model._meta.concrete_fields:
        name = field.attname
        if name in loaded and name not in FRAMEWORK_COLUMNS and name != "state":
            yield name, loaded[name]


def _copied(value: Any) -> Any:
    return deepcopy(value) if isinstance(value, list | dict) else value


def _differ(one: Any, other: Any) -> bool:
    try:
        return bool(one != other)
    except PROJECT_ERRORS:
        return False


def _differ_stored(field: Field, one: Any, other: Any) -> bool:
    """Return whether two values are stored as different ones, as far as the field can say."""
    try:
        return bool(field.get_prep_value(one) != field.get_prep_value(other))
    except PROJECT_ERRORS:
        return False


def _field_of(model: type[Model], name: str) -> Field:
    return next(field for field in model._meta.concrete_fields if field.attname == name)
