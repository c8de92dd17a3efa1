"""Parts for PostgreSQL 14 and later: one statement, and so one transaction, claims rows; one records outcomes."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F, Model, QuerySet
from django.db.models.expressions import RawSQL
from django.db.transaction import atomic

from stator.db import portable, sql, transactions
from stator.db.claims_postgresql import PostgresqlClaims
from stator.db.compiler import Compiler, compiler_of
from stator.db.interface import Claim, Operations, StoreParts
from stator.db.leases import Leases, still_claimed
from stator.db.records_postgresql import PostgresqlRecords
from stator.db.session import hurried, read_committed, send, session_of, set_limits
from stator.db.values import Params, Pk, Row
from stator.scopes import in_parts
from stator.statements import Statement, selecting, written

# Locks rows with valid claims until the commit. Unlike all other statements, it waits for rows that are locked.
LOCK_CLAIMED = """
SELECT t.{pk} FROM unnest(%(keys)s::{pk_type}[], %(nth)s::int[]) AS v(pk, nth) JOIN {table} t ON t.{pk} = v.pk
WHERE t.state_claim IS NOT DISTINCT FROM (%(tokens)s::uuid[])[v.nth] AND t.{state} = %(source)s{within}
ORDER BY v.pk FOR NO KEY UPDATE OF t
"""

# Locks the ``sought`` rows among rows in the order of an index. ``one`` is the row at its place, locked, or nothing. It
# runs for each row in turn until there are enough, so the order needs no sort and the plan no statistics.
LOCK_AMONG = """
SELECT one.pk FROM ({among}) among CROSS JOIN LATERAL ({one}) one WHERE among.sought LIMIT {limit}
"""

# What a look limits in a session, what that was before, and how to restore it.
LIMITED = ("lock_timeout", "statement_timeout", "max_parallel_workers_per_gather")
LIMITS = "SELECT " + ", ".join(f"current_setting('{name}')" for name in LIMITED)
RESTORE = "SELECT " + ", ".join(f"set_config('{name}', %s, true)" for name in LIMITED)


class PostgresqlTransactions(transactions.Transactions):
    """Transactions at READ COMMITTED, with limits of their own; statements in one round trip each."""

    def __init__(self, operations: Operations, compiler: Compiler) -> None:
        super().__init__(operations)
        self._compiler = compiler

    def transaction(self, *, wait: float | None = None) -> AbstractContextManager[object]:
        """Return a transaction at READ COMMITTED, independent of the default of the database.

        A worker that is stopped or swapped out inside a transaction would keep its locks and block all other workers;
        the server ends its session instead.
        """
        operations = self._operations
        longest, connection = operations.locks.wait, operations.connection
        if longest is not None and self._is_of_handler:
            return hurried(connection, super().transaction, longest, session_of(connection).usual["lock_timeout"])
        if connection.in_atomic_block:
            return super().transaction()
        return self._read_committed(idle=operations.settings.LEASE / 2, wait=operations.locks.shortest(wait))

    def handler_transaction(self) -> AbstractContextManager[object]:
        """Return a :meth:`transaction` around a handler, whose own statements use the session's planner settings."""
        if self._operations.connection.in_atomic_block:
            return super().transaction()
        return self._read_committed(of_handler=True)

    def _read_committed(self, **options: Any) -> AbstractContextManager[object]:
        usual = session_of(self._operations.connection).isolation
        return read_committed(self._operations.alias, super().transaction, usual, **options)

    def hurry(self) -> None:
        """Limit how long the rest of a handler's transaction waits for locks."""
        if self._is_of_handler:
            set_limits(self._operations.connection, wait=self._operations.locks.wait)

    @property
    def _is_of_handler(self) -> bool:
        """Whether this is in the transaction of a handler."""
        connection: Any = self._operations.connection
        own = connection.in_atomic_block and getattr(connection, "stator_transaction", False)
        return bool(own and connection.stator_of_handler)

    def fetch(
        self, statement: str, params: Params, planner: str = sql.ANY, *, often: bool = False, last: bool = False
    ) -> list[Row]:
        """Return the rows of one statement, which outside of a transaction is one by itself and takes one round trip.

        ``often``: the same text is sent again and again. ``last``: commit the handler's transaction with it.
        """
        operations = self._operations
        connection: Any = connections[operations.alias]
        if connection.in_atomic_block and not getattr(connection, "stator_transaction", False):
            return send(connection, statement, params)
        session = session_of(connection)
        inside = connection.in_atomic_block
        # No plan of a statement for one node is kept if the value that tells the node is a parameter.
        often = often and (operations.division.has_own_text or operations.scope.node is None)
        with nullcontext() if inside or session.isolation == "read committed" else self.transaction():
            restore = inside and connection.stator_of_handler
            if not inside or restore:
                planner = sql.wait_for_locks(operations.locks.wait) + planner
            return session.send(connection, planner, statement, params, often=often, restore=restore, last=last)

    def lock(self, rows: QuerySet[Model], limit: int, *, in_order: bool = False) -> list[Pk]:
        """Lock rows like the portable method, and always by an index."""
        picked = self.pick(rows, limit)
        planner = sql.IN_ORDER if in_order else sql.BY_KEY
        return self._compiler.keys_of(self._operations.fetch(picked.text, picked.params, planner))

    def lock_among(self, among: QuerySet[Model], rows: QuerySet[Model], limit: int) -> list[Pk]:
        """Lock rows that may be few among very many: search the first ones, and then all by the index of JSON."""
        locked = self._lock_among(among[: sql.FIRST_ROWS], rows, limit, sql.IN_ORDER)
        if len(locked) < limit:
            locked = self._lock_among(among.filter(sought=True), rows, limit, sql.BY_GIN)
        return locked

    def lock_claimed(self, claims: list[Claim]) -> list[Claim]:
        """Lock claimed rows like the portable method, in one statement whose text never changes."""
        values = self._compiler.claimed(claims) | {"source": claims[0].state.value, "part": self._operations.part}
        params = self._locking.bind(self._operations.connection, values)
        locked = self._operations.fetch(self._locking.text, params, sql.BY_KEY, often=True)
        mine = set(self._compiler.keys_of(locked))
        here, others = self._operations.part, [claim for claim in claims if claim.pk not in mine]
        if others and self._operations.division.moves:
            still_claimed(self._operations, others)
            for claim in others:
                if claim.operations.part != here:
                    mine.update(each.pk for each in claim.operations.lock_claimed([claim]))
        return [claim for claim in claims if claim.pk in mine]

    @cached_property
    def _locking(self) -> Statement:
        compiler = self._compiler
        return written(
            LOCK_CLAIMED, table=compiler.table, pk=compiler.pk, pk_type=compiler.pk_type, state=compiler.state,
            within=compiler.within(self._operations, "t"),
        )  # fmt: skip

    def _lock_among(self, among: QuerySet[Model], rows: QuerySet[Model], limit: int, planner: str) -> list[Pk]:
        operations, compiler = self._operations, self._compiler
        first = selecting(among.annotate(stator_place=compiler.place).values("pk", "stator_place", "sought"))
        one = self.pick(rows.order_by().filter(compiler.at_place("among")), 1)
        statement = written(LOCK_AMONG, among=first, one=one, limit=Statement("%s", (limit,)))
        return compiler.keys_of(operations.fetch(statement.text, statement.params, planner))

    def keep(self, rows: QuerySet[Model]) -> set[Pk]:
        """Lock rows like the portable method, with locks that several workers may share."""
        to_python, kept = rows.model._meta.pk.to_python, list[Row]()
        for part in in_parts(rows):
            keys = selecting(part.order_by().values("pk"))
            kept += self._operations.fetch(f"{keys.text} FOR SHARE SKIP LOCKED", keys.params)
        return {to_python(pk) for (pk,) in kept}

    def pick(self, rows: QuerySet[Model], limit: int, **also: F | RawSQL) -> Statement:
        """Return a query that locks rows and returns their keys and the columns ``also``."""
        return selecting(rows.select_for_update(**self._lock_options(skip_locked=True)).values("pk", **also)[:limit])


class CompositeTransactions(PostgresqlTransactions):
    """Transactions on rows whose key is of several columns: no array has such keys."""

    lock = transactions.Transactions.lock
    lock_among = transactions.Transactions.lock_among
    lock_claimed = transactions.Transactions.lock_claimed


def parts_of(operations: Operations) -> StoreParts:
    """Return the parts of these operations; the leases are the portable ones."""
    compiler = compiler_of(operations.model, operations.alias)
    if operations.model._meta.is_composite_pk:
        return portable.parts_of(operations)._replace(transactions=CompositeTransactions(operations, compiler))
    transactions = PostgresqlTransactions(operations, compiler)
    records = PostgresqlRecords(operations, compiler, transactions.pick)
    return StoreParts(transactions, Leases(operations), PostgresqlClaims(operations, compiler), records)


@contextmanager
def reading(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Have a block in a transaction that cannot write, unless another one is open already."""
    outer = connection.in_atomic_block
    with atomic(using=connection.alias):
        if not outer:
            send(connection, "SET TRANSACTION READ ONLY", ())
        yield


@contextmanager
def looking(connection: BaseDatabaseWrapper, lock: float, most: float) -> Iterator[None]:
    """Limit the seconds that statements of a block wait for locks and take, in a transaction or a part of one.

    A look counts some thousand rows of each kind, which takes less time than the start of parallel processes.
    """
    outer = connection.in_atomic_block
    with atomic(using=connection.alias):
        usual = send(connection, LIMITS, ())[0] if outer else ()
        set_limits(connection, wait=lock, time=most, parallel=False)
        yield
        if outer:
            # A part that fails is rolled back, and its limits with it.
            send(connection, RESTORE, usual)
