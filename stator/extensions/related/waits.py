"""Objects that wait for other objects: which rows wait, and how a move of the awaited object wakes them.

A row that waits is *parked* when its turn to be claimed comes: it is not ready, and due in a far year. So it is out of
the line, and polls do not meet it. The move of the awaited object reopens its waiters through the index of their
relation, in the same transaction. A scheduling pass finds rows that no move wakes, because the awaited object was
deleted or because an application had locked the row.

Before each claim of a row, the awaited object is checked, so a row that was reopened too early does no harm. No row is
parked too late to be woken, because the awaited object is locked against changes meanwhile.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.db.models import DateTimeField, Exists, ForeignKey, Model, OuterRef, Q, QuerySet, Subquery, Value

from stator.extensions.related.watches import managed_owner
from stator.graph.graphs import state_problem
from stator.rows import columns
from stator.rows.clock import Now
from stator.rows.due_times import first_of, parked
from stator.rows.life import Changes
from stator.rows.meta import graph_of, options_of
from stator.rows.state_column import state_field
from stator.rows.wakeup import announce
from stator.scopes import are_apart, in_parts, read_first

if TYPE_CHECKING:
    from stator.db.interface import Operations

# Rows reopened by one statement.
BATCH = 5000


@dataclass(frozen=True, slots=True)
class Wait:
    """A relation ``field`` of ``model`` to an object of ``awaited`` that has to be in one of the states ``until``."""

    model: type[Model]
    field: str
    awaited: type[Model]
    until: tuple[str, ...]

    @property
    def key(self) -> str:
        """The lookup of the primary key of the awaited object."""
        return f"{self.field}__pk"

    def unsettled(self, using: str) -> QuerySet[Model]:
        """Return the awaited objects that are not there yet."""
        return QuerySet(self.awaited, using=using).exclude(**state_field(self.awaited).among(self.until))

    def holds(self, among: QuerySet[Model]) -> Exists:
        """Return a condition for the rows ``among`` which wait by this relation."""
        return Exists(self._of(among, self.unsettled(among.db)))

    def state(self, among: QuerySet[Model]) -> Subquery:
        """Return the name of the state of the object that each row ``among`` these refers to; null if there is none."""
        related = self._of(among, QuerySet(self.awaited, using=among.db))
        return Subquery(state_field(self.awaited).names_in(related)[:1])

    def _of(self, among: QuerySet[Model], awaited: QuerySet[Model]) -> QuerySet[Model]:
        """Return the awaited object of the row of an outer query ``among``."""
        mine = awaited.filter(pk=OuterRef(self.key))
        if not are_apart(self.model, among.db):
            return mine
        keys = among.order_by().values(self.key)
        return read_first(mine.filter(pk__in=keys), (self.awaited._meta.pk.name, state_field(self.awaited).name))


@lru_cache(maxsize=1024)
def waits_of(model: type[Model]) -> tuple[Wait, ...]:
    """Return what objects of a model wait for; raise ``ImproperlyConfigured`` with one line if that is impossible."""
    return tuple(_wait(model, name, until) for name, until in options_of(model).waits_for)


@lru_cache(maxsize=1024)
def waiters_of(model: type[Model]) -> tuple[Wait, ...]:
    """Return the relations that make objects of this or other models wait for objects of this model."""
    owners = [other for other in apps.get_models() if managed_owner(other) is other]
    return tuple(wait for other in owners for wait in waits_of(other) if wait.awaited is model)


def wake(wait: Wait, using: str, pks: Collection[object]) -> None:
    """Reopen rows that waited for these objects; call it in the transaction that moves them.

    Rows that other transactions have locked are skipped and left to the next scheduling pass.
    """
    reopen_all(QuerySet(wait.model, using=using).filter(**{f"{wait.key}__in": pks}))


def parking() -> Changes:
    """Return the changes when a row waits for another object, whose move will reopen it."""
    # Far beyond ``parked_from()``, so that tests that move time do not make a parked row a late one.
    return {"state_ready": False, "state_next_attempt": Value(first_of(5000), output_field=DateTimeField())}


def postponing() -> Changes:
    """Return the changes when a row leaves the line until the next poll, because its waiting could not be checked."""
    return {"state_ready": False, "state_next_attempt": Now()}


def reopen(rows: QuerySet[Model], limit: int) -> int:
    """Make up to ``limit`` of the parked rows ready and wake workers; return how many. Call it in a transaction."""
    features = connections[rows.db].features
    picked: list[object] = []
    for part in in_parts(rows.filter(parked())):
        locked = part.select_for_update(
            skip_locked=features.has_select_for_update_skip_locked, no_key=features.has_select_for_no_key_update
        )
        picked += locked.order_by().values_list("pk", flat=True)[: limit - len(picked)]
    if picked:
        QuerySet(rows.model, using=rows.db).filter(pk__in=picked).update(**columns.waking())
        announce(rows.model, rows.db)
    return len(picked)


def reopenable(operations: "Operations") -> QuerySet[Model]:
    """Return the parked rows that no longer wait for anything."""
    rows: QuerySet[Model] = operations.waiting().filter(parked())
    return rows.exclude(waiting(rows)) if waits_of(operations.model) else rows


def waiting(among: QuerySet[Model]) -> Q:
    """Return a condition for the rows ``among`` which wait for another object; none for a model without waits."""
    held = Q(pk__in=[])
    for wait in waits_of(among.model):
        held |= Q(wait.holds(among))
    return held


def _wait(model: type[Model], name: str, until: tuple[str, ...]) -> Wait:
    field, where = model._meta.get_field(name), f"{model.__name__}.StatorMeta.waits_for: {name!r}"
    if not isinstance(field, ForeignKey):
        raise ImproperlyConfigured(f"{where} is a {type(field).__name__}, not a ForeignKey or OneToOneField")
    related = field.related_model
    awaited = managed_owner(related)
    if awaited is None:
        raise ImproperlyConfigured(f"{where} leads to {related.__name__}, which is not a managed model")
    graph = graph_of(awaited)
    for state in until:
        if wrong := state_problem(graph, state):
            raise ImproperlyConfigured(f"{where}: {wrong}")
    return Wait(model, name, awaited, until)


def reopen_all(rows: QuerySet[Model]) -> None:
    while reopen(rows, BATCH) == BATCH:
        pass
