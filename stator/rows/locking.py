"""Rows that are locked before they are written: in the order of their keys, in batches of one transaction each."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from django.db import transaction
from django.db.backends.base.features import BaseDatabaseFeatures
from django.db.models import Model, Q, QuerySet

from stator.rows.keys import key_names, keys_in
from stator.rows.life import OF_LIFE, Life
from stator.rows.meta import owner_of, written_to
from stator.rows.state_column import StateField, state_field
from stator.scopes import in_parts
from stator.statements import has_own_conditions, is_one_of, names_one_row

# Rows per transaction: few enough to hold no lock for long, enough to move a million rows in seconds.
BATCH = 1000

# SQLite nests a condition for each key of several columns, and refuses 1,000.
COMPOSITE_KEYS = 500


class Locked(NamedTuple):
    """A locked row as it was before it is written."""

    pk: object
    state: str
    attempts: int
    version: int
    life_number: int | None
    visit_number: int | None

    @property
    def life(self) -> Life:
        """Its life, visit and wish."""
        return Life.of(self.version, self.life_number, self.visit_number)


# A condition that all rows meet.
EVERY = Q()


def in_batches(queryset: QuerySet[Model], write: Callable[[str, QuerySet[Model], list[Locked]], int]) -> int:
    """Lock the rows in batches, in key order; return the sum of the results of ``write(alias, rows, before)``.

    ``before`` has the locked rows. Each batch is one transaction.
    """
    owner = owner_of(queryset.model)
    using = written_to(queryset)
    rows: QuerySet[Model] = QuerySet(owner, using=using)
    written = 0
    queryset = queryset.using(using)
    # We lock the rows ourselves, in key order; ``FOR UPDATE`` cannot be combined with ``DISTINCT``.
    queryset.query.select_for_update = False
    for meant, pks in _pages(queryset, rows):
        with transaction.atomic(using=using):
            before = lock_rows(meant, owner, using, pks)
            locked = rows.filter(is_one_of(rows, [row.pk for row in before]))
            written += write(using, locked, before) if before else 0
    return written


def _pages(queryset: QuerySet[Model], rows: QuerySet[Model]) -> Iterator[tuple[QuerySet[Model], list[object] | None]]:
    """Yield batches of primary keys in order, each with the queryset that its rows must still match once locked.

    The only batch of a queryset that names one key has no keys: its lock finds the row.
    """
    query = queryset.query
    if query.is_sliced or query.distinct or query.combinator:
        # Such a queryset cannot be filtered further, so its keys are read at once.
        pks = sorted(set(keys_in(queryset)), key=str)
        yield from ((rows, some) for some in parts_of(rows.model, pks))
        return
    if names_one_row(queryset) and _is_decided_by_lock(queryset, rows.model):
        yield queryset, None
        return
    last, most = None, most_keys(rows.model, BATCH)
    while page := _next_pks(queryset, rows.model, last, most):
        yield queryset, page
        if len(page) < most:
            return
        last = page[-1]


def _is_decided_by_lock(queryset: QuerySet[Model], owner: type[Model]) -> bool:
    """Return whether a lock on the rows that match a queryset checks all of it, with the rows as they are then.

    A subquery, or a condition on another table, is not checked anew when the lock was waited for.
    """
    return queryset.model is owner and has_own_conditions(queryset)


def _next_pks(queryset: QuerySet[Model], owner: type[Model], last: object, most: int) -> list[object]:
    rest = queryset if last is None else queryset.filter(**{f"{owner._meta.pk.name}__gt": last})
    # By the columns: with DISTINCT, Django writes a composite key in a way that MariaDB refuses.
    return keys_in(_ordered(rest, *key_names(owner)).distinct()[:most])


def _ordered(rows: QuerySet[Model], *names: str) -> QuerySet[Model]:
    ordered = rows.order_by(*names)
    # A reversed queryset stays reversed even if it is ordered anew.
    ordered.query.standard_ordering = True
    return ordered


def parts_of(owner: type[Model], pks: Collection[object]) -> Iterator[list[object]]:
    """Yield keys in parts of which one statement can name all."""
    listed, size = list(pks), most_keys(owner, BATCH)
    return (listed[start : start + size] for start in range(0, len(listed), size))


def most_keys(model: type[Model], wanted: int) -> int:
    """Return how many rows a transaction may have: as many as ``wanted``, if its statements can name so many keys."""
    return min(wanted, COMPOSITE_KEYS) if model._meta.is_composite_pk else wanted


def lock_rows(
    queryset: QuerySet[Model], owner: type[Model], using: str, pks: Sequence[object] | None, own: Q = EVERY
) -> list[Locked]:
    """Lock the rows and return the rows that still match the queryset: they may have changed before the lock.

    ``pks``: the keys of the rows; None if the queryset names its row. ``own``: a condition on columns of the row
    itself, which the lock checks; other rows are not locked.
    """
    rows: QuerySet[Model] = QuerySet(owner, using=using)
    decided = _is_decided_by_lock(queryset, owner)
    meant = queryset if decided else rows
    wanted = EVERY if pks is None else is_one_of(rows, pks)
    no_key, locked_rows = features_of(using).has_select_for_no_key_update, []
    for part in in_parts(meant.filter(own, wanted)):
        locked = _ordered(part, "pk").select_for_update(no_key=no_key)
        locked_rows += read_locked(locked, state_field(owner))
    if decided:
        return locked_rows
    still = set(keys_in(queryset.filter(wanted)))
    return [row for row in locked_rows if row.pk in still]


def read_locked(rows: QuerySet[Model], field: StateField) -> list[Locked]:
    read = rows.values_list("pk", field.name, "state_attempts", *OF_LIFE)
    if field.has_names:
        return [Locked(*values) for values in read]
    return [Locked(pk, field.name_of(value), *others) for pk, value, *others in read]


def features_of(using: str) -> BaseDatabaseFeatures:
    return transaction.get_connection(using).features
