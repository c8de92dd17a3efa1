"""Attempts of all that is ready, for tests: until nothing is left, or a handler has not saved a field."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import NamedTuple

from django.db import router
from django.db.models import Field, Model, QuerySet

from stator.db.interface import Claim, Ended, Operations
from stator.exceptions import PROJECT_ERRORS, StatorError
from stator.graph import State
from stator.graph.outcomes import Moved, Outcome
from stator.models import StatorModel
from stator.querysets import OperatorQuerySet
from stator.rows.beginning import FRAMEWORK_COLUMNS
from stator.rows.state_column import StateField, state_name
from stator.runner import StatorRunner

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


class _Change(NamedTuple):
    """What a handler has changed in an object: values before and now by field; ``version``: of the row afterwards."""

    pk: object
    version: int
    values: dict[str, tuple[object, object]]


class UnsavedFinder:
    """Around the calls of handlers: notes what each changes in its object, and finds afterwards what is not stored."""

    def __init__(self) -> None:
        self._changes: dict[tuple[Operations, State], list[_Change]] = defaultdict(list)

    def begin(self, claims: list[Claim]) -> dict[int, dict[str, object]]:
        """Return the values of the objects before the call."""
        return {id(claim): {name: _copied(value) for name, value in _own_values(claim)} for claim in claims}

    def end(
        self,
        claims: list[Claim],
        begun: dict[int, dict[str, object]],
        ended: Sequence[Ended],
        error: BaseException | None = None,
    ) -> None:
        """Note the values that differ after the call."""
        for claim, outcome in ended:
            # What an attempt that has ended its own claim changed is not stored, whoever would save it.
            if outcome.failure is None and claim.pk == claim.instance.pk and not claim.own_end:
                self._note(claim, begun[id(claim)], outcome)

    def _note(self, claim: Claim, before: dict[str, object], outcome: Outcome) -> None:
        changed = {
            name: (before[name], value)
            for name, value in _own_values(claim)
            if name in before and value is not before[name] and _differ(before[name], value)
        }
        if changed:
            change = _Change(claim.pk, claim.version + isinstance(outcome, Moved), changed)
            self._changes[claim.operations, claim.state].append(change)

    def given_up(self, claim: Claim, outcome: Outcome) -> None:
        """Do nothing: what such a call changes is not stored."""

    def find(self) -> Unsaved | None:
        """Return the first object with a changed value that is stored as it was before; call it after the commit."""
        for (operations, state), changes in self._changes.items():
            if unsaved := _look(operations, state, changes):
                return unsaved
        return None


def _look(operations: Operations, state: State, changes: list[_Change]) -> Unsaved | None:
    names = {name: _field_of(operations.model, name) for change in changes for name in change.values}
    rows: QuerySet[Model] = QuerySet(operations.model, using=operations.alias)
    # Whoever has claimed an object meanwhile may have written it.
    free = rows.filter(pk__in=[change.pk for change in changes], state_claim=None)
    with operations.reading():
        stored = {(row["pk"], row["state_version"]): row for row in free.values("pk", "state_version", *names)}
    for change in changes:
        row = stored.get((change.pk, change.version))
        lost = [
            name for name, (before, now) in change.values.items()
            if row and not hasattr(now, "resolve_expression")
            and not _differ(row[name], before, names[name].get_prep_value)
            and _differ(before, now, names[name].get_prep_value)
        ]  # fmt: skip
        if lost:
            return Unsaved(operations, state, change.pk, ", ".join(names[name].name for name in lost))
    return None


def _own_values(claim: Claim) -> Iterator[tuple[str, object]]:
    """Yield the values of the model's own fields that the instance has loaded."""
    loaded = vars(claim.instance)
    for field in claim.operations.model._meta.concrete_fields:
        name = field.attname
        if name in loaded and name not in FRAMEWORK_COLUMNS and not isinstance(field, StateField):
            yield name, loaded[name]


def _copied(value: object) -> object:
    return deepcopy(value) if isinstance(value, list | dict) else value


def _differ(one: object, other: object, stored: Callable[[object], object] = lambda value: value) -> bool:
    """Return whether two values differ, or what is ``stored`` for them, as far as they can be compared."""
    try:
        return bool(stored(one) != stored(other))
    except PROJECT_ERRORS:
        return False


def _field_of(model: type[Model], name: str) -> Field:
    return next(field for field in model._meta.concrete_fields if field.attname == name)


# Rows that an error names.
NAMED = 5


class NotDrained(StatorError, AssertionError):
    """Rows are still ready after the allowed number of cycles: their graph has a loop without a delay."""


class NotSaved(StatorError, AssertionError):
    """A handler changed a field of its object, and neither the handler nor the state's ``saves`` stored it."""


def drain(*models: type[StatorModel], limit: int = 100) -> int:
    """Attempt every ready or due row, again and again until none is left; return the number of attempts.

    Without models, it drains all managed ones. A row whose handler returned None is due later: call :func:`advance`.
    Raises :class:`NotDrained`, which names some rows, if rows are still ready after ``limit`` attempts of each, and
    :class:`NotSaved` if a handler changed a field of its object that is not stored.

    >>> Parcel.objects.create(orders="wait") and drain(Parcel)
    1
    """
    runner = StatorRunner(list(models) or None)
    # A test has chosen its schema.
    runner.schemas = ()
    attempts = 0
    for _ in range(limit):
        with all_saved() as finder:
            runner.around = (finder,)
            made = runner.run_single_cycle()
        attempts += made
        if not made:
            return attempts
    if left := [description for model in runner.models or () for description in _still_ready(model)]:
        raise NotDrained(f"still ready after {limit} attempts each: {', '.join(left)}")
    return attempts


@contextmanager
def all_saved() -> Iterator[UnsavedFinder]:
    """Yield what is to be around handlers; raise ``NotSaved`` at the end if one has changed a field not stored."""
    finder = UnsavedFinder()
    yield finder
    if unsaved := finder.find():
        raise NotSaved(str(unsaved))


def _still_ready(model: type[StatorModel]) -> list[str]:
    rows: OperatorQuerySet[StatorModel] = OperatorQuerySet(model, using=router.db_for_write(model))
    ready = rows.ready().order_by("pk")[:NAMED]
    return [f"{model._meta.label} {row.pk} in {state_name(row)} (moved {row.state_version} times)" for row in ready]
