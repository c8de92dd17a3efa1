"""Transactions, statements and row locks through the ORM: correct on every database."""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from django.db import transaction
from django.db.models import Model, QuerySet

from stator.db.interface import Claim, Operations
from stator.db.locks import WAIT
from stator.db.values import Params, Pk, Row
from stator.rows.keys import keys_in
from stator.statements import fetch_all

# The most rows that are locked at once while other transactions may wait for them; each takes 0.2 ms to park.
LOCKED_AT_ONCE = 1000


class Transactions:
    """Short transactions. Locks skip rows that other transactions have locked; only locks of claimed rows wait."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    def fetch(
        self, statement: str, params: Params, planner: str = "", *, often: bool = False, last: bool = False
    ) -> list[Row]:
        """Return the rows of one statement.

        ``planner``: settings that are sent ahead of it. ``often``: it is sent again and again. ``last``: it commits the
        handler's transaction. They are for PostgreSQL.
        """
        with self.reading():
            return fetch_all(self._operations.connection, statement, params)

    @property
    def longest_wait(self) -> float:
        """Seconds that a worker's statement may wait for another transaction's lock."""
        return WAIT

    def transaction(self, *, wait: float | None = None) -> AbstractContextManager[object]:
        """Return a short transaction for our own writes; ``wait``: seconds that it waits for a lock, if fewer."""
        return transaction.atomic(using=self._operations.alias)

    def reading(self) -> AbstractContextManager[object]:
        """Return a context for a query with the lock timeout of :meth:`transaction`; no transaction without one."""
        return nullcontext() if self._operations.locks.wait is None else self.transaction()

    def handler_transaction(self) -> AbstractContextManager[object]:
        """Return the transaction of a handler whose state is ``atomic``; the handler has no lock timeout."""
        return self.transaction()

    def hurry(self) -> None:
        """Limit how long the rest of a handler's transaction waits for locks."""

    def lock(self, rows: QuerySet[Model], limit: int, *, in_order: bool = False) -> list[Pk]:
        """Lock up to ``limit`` rows, skipping rows locked by other transactions; return their primary keys.

        ``in_order``: the rows are many, and an index has them in the wanted order.
        """
        return self._locked(rows, limit)

    def lock_among(self, among: QuerySet[Model], rows: QuerySet[Model], limit: int) -> list[Pk]:
        """Lock like :meth:`lock`; ``among``: rows in the order of an index, which ``sought`` filters to ``rows``."""
        return self._locked(rows, limit)

    def _locked(self, rows: QuerySet[Model], limit: int) -> list[Pk]:
        options = self._lock_options(skip_locked=self._operations.connection.features.has_select_for_update_skip_locked)
        return keys_in(rows.select_for_update(**options)[:limit])

    def keep(self, rows: QuerySet[Model]) -> set[Pk]:
        """Lock rows of any model until the transaction ends; return the keys of rows that nobody else is changing."""
        return set(self._locked(rows, LOCKED_AT_ONCE))

    def _lock_options(self, *, skip_locked: bool = False) -> dict[str, Any]:
        operations, features = self._operations, self._operations.connection.features
        options: dict[str, object] = {"skip_locked": skip_locked, "no_key": features.has_select_for_no_key_update}
        # Lock only the row itself, not the rows that a filter joins. Django takes no name with a schema here.
        if features.has_select_for_update_of and "." not in operations.model._meta.db_table:
            options["of"] = ("self",)
        return options

    def lock_claimed(self, claims: list[Claim]) -> list[Claim]:
        """Lock rows until the end of the transaction; return the claims that are valid."""
        tokens = {claim.pk: claim.token for claim in claims}
        options = self._lock_options()
        own = self._operations.state_field.at(claims[0].state)
        rows = self._operations.rows.filter(pk__in=list(tokens), **own).order_by("pk")
        # Django takes the table to lock from the first column, which a composite key is not.
        locked = rows.select_for_update(**options).values_list("state_claim", "pk")
        mine = {pk for token, pk in locked if token == tokens[pk]}
        return [claim for claim in claims if claim.pk in mine]


def lock_parts(operations: Operations, parts: Iterable[QuerySet[Model]], limit: int) -> list[Pk]:
    """Lock rows of one queryset after the other: each can use an index, an OR of them could not."""
    locked: list[Pk] = []
    for rows in parts:
        if len(locked) < limit:
            locked += operations.lock(rows, limit - len(locked))
    return locked


@contextmanager
def contained(operations: Operations) -> Iterator[None]:
    """Keep the caller's open transaction usable: if the block breaks it, roll back to before the block."""
    connection, alias = operations.connection, operations.alias
    if not connection.in_atomic_block:
        yield
        return
    # ``connection.savepoint``, because ``django.db.transaction.savepoint`` is renamed in Django 6.1.
    savepoint: Any = connection.savepoint()
    yield
    if connection.needs_rollback or not connection.is_usable():
        transaction.set_rollback(False, using=alias)
        transaction.savepoint_rollback(savepoint, using=alias)
    transaction.savepoint_commit(savepoint, using=alias)
