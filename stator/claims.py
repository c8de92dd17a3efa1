"""Claims for programs that are not workers of this framework, such as a queue, an API or a console.

Their rows are claimed, leased and fenced like workers' rows. A claim has a token, and writing after the claim has
ended raises :class:`~stator.exceptions.LeaseLost` and changes nothing. Any worker reaps a lease that has run out.
Unlike a worker, a program is refused from the end of its lease on, even if the lease is not reaped yet.
"""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import nullcontext
from functools import lru_cache, partial
from typing import TYPE_CHECKING, TypeVar, cast
from uuid import UUID

from django.db import DatabaseError, IntegrityError, router, transaction
from django.db.models import Expression, Field, Model, Q, QuerySet

from stator.capabilities import capabilities_of
from stator.conf import latest_settings
from stator.db import inserts, operations_for, program_claims
from stator.db.chores import mark_ready
from stator.db.claims import complete, take
from stator.db.conditions import CLAIM
from stator.db.inserts import Insertion
from stator.db.interface import AtOnce, Claim, Ended, Operations, OutcomeBatch, Written, new_token, new_worker_id
from stator.db.lookups import first_of_each
from stator.db.preparing import PREPARING, Preparing
from stator.db.probe import overdue
from stator.db.repeat import retrying
from stator.db.retry import OUTAGES, is_retryable
from stator.db.values import Instance, Pk, Row
from stator.exceptions import LeaseLost
from stator.graph import State
from stator.graph.failures import Failure, bounded, describe
from stator.graph.outcomes import Moved, Outcome, Released, Waiting
from stator.rows import columns
from stator.rows.clock import Now
from stator.rows.indexes import place_in_line
from stator.rows.meta import home_of, named_state, owner_of
from stator.rows.wakeup import announce
from stator.statements import Statement
from stator.worker.announcements import tell

if TYPE_CHECKING:
    from stator.models import StatorModel

__all__ = [
    "OUTAGES", "Claim", "Failure", "Insertion", "LeaseLost", "Outcome", "Released", "Row", "Waiting", "Written",
    "bounded", "bring_up", "claim", "claim_at_once", "describe", "end", "find", "find_many", "first_of_each", "hold",
    "insert_at_once", "is_retryable", "longest_lease", "moved", "of_instance", "preparing",
]  # fmt: skip

# The most rows that one call marks ready, and the most leases that it ends; workers or the next call do the rest.
MAX_ROWS = 1000

# The most operations to cache: one for each model, database and named worker, with its compiled statements.
MAX_CACHED = 250

M = TypeVar("M", bound=Model)
Key = TypeVar("Key", bound=Hashable)

Pick = Callable[[QuerySet[M]], QuerySet[M]]


def claim(
    model: type[M],
    limit: int = 1,
    *,
    pick: "Pick[M] | None" = None,
    lease: float | Expression | None = None,
    worker: str = "",
    using: str | None = None,
    first: Callable[[], bool] | None = None,
    then: Callable[[list[Claim]], list[Claim]] | None = None,
    among: "Pick[M] | None" = None,
) -> list[Claim]:
    """Claim up to ``limit`` ready rows and return the claims; ``claim.instance`` is the object.

    Rows that another transaction has locked are skipped.

    ``pick``: narrows and orders the queryset of claimable rows; by default all rows, those due longest first.
    ``lease``: seconds, or an expression for the moment until which each row is held; by default the setting.
    ``worker``: twelve hexadecimal digits at the beginning of the token.
    ``first``: called at the beginning of the claiming transaction, for instance to take locks. If it returns False,
    nothing is claimed.
    ``then``: called with the claims in that transaction. Claims that it does not return are undone.
    ``among``: rows that an index has in the order of ``pick``, with an annotation ``sought`` that filters them. Pass it
    if ``pick`` may match few of very many rows.

    Raises ``IntegrityError`` and claims nothing if a concurrent claim makes this one violate a constraint.
    """
    operations, pick, claimed = _operations(model, using, worker), pick or _in_turn, list[Claim]()
    conditions = operations.conditions.for_program(operations)
    states, where = conditions.states(operations.automatic), conditions.rows()
    until = operations.settings.LEASE if lease is None else lease

    def claimable(part: Operations) -> QuerySet[M]:
        return cast("QuerySet[M]", part.ready(states).filter(where))

    for part, most in operations.division.shares(pick(claimable(operations)), limit):
        rows = claimable(part)
        lock = (
            partial(part.lock, pick(rows), most, in_order=True)
            if among is None
            else partial(part.lock_among, among(rows), pick(rows), most)
        )
        try:
            with nullcontext() if part.part is None else part.locks.spared(CLAIM):
                claimed += complete(_claim(part, lock, until, first, then))
        except IntegrityError:
            # The claims in other parts are committed.
            if not claimed:
                raise
    return claimed


def claim_at_once(
    model: type[M],
    key: Hashable,
    limit: int,
    *,
    pick: "Pick[M]",
    lease: Callable[[], Expression],
    also: Statement,
    values: Mapping[str, object],
    among: "Pick[M] | None" = None,
    worker: str = "",
    using: str | None = None,
) -> tuple[list[Claim], bool]:
    """Claim rows like :func:`claim` in one statement; return the claims, in no order, and the ``stator_flag``.

    If it returns no claims, call :func:`claim`: the database cannot do this, nothing is ready, or the case is unusual.
    The statement is compiled once for each ``key`` and ``limit``; only then are the other arguments read.

    ``pick``: also annotates the rows. If one is ``stator_odd``, it needs more than this statement, and none is claimed;
    the claim returns whether all rows have the ``stator_flag``.
    ``lease``: returns the moment until which each row is held.
    ``also``: continues the WITH, with what the program keeps of its claims; it reads the claimed rows in ``done``.
    ``values``: the values of the parameters.
    ``among``: as in :func:`claim`; only its first rows are searched, and if fewer than ``limit`` of them match, none is
    claimed.
    """
    operations = _operations(model, using, worker)
    if not operations.capabilities.writes_in_with:
        return [], False
    token = new_token(operations.worker_id)
    # The statement depends on no other setting.
    key = key, operations.settings.MAX_CRASHES, operations.longest_lease
    rows, flag, since = program_claims.claim(operations, key, pick, lease, token, limit, values, also=also, among=among)
    states, own = operations.state_field.states, operations.state_field.attname
    claims = [
        Claim(part, row, states[row.__dict__[own]], token, since)
        for part, row in zip(operations.division.parts_of(rows), rows, strict=True)
    ]
    return complete(claims), flag


def bring_up(model: type[Model], *, using: str | None = None) -> int:
    """Mark due rows ready and end expired leases, up to 1,000 of each; return the number of leases ended.

    Workers do this anyway. A program that calls this before it claims does not depend on a running worker.
    """
    operations = _operations(model, using)
    due, expired = overdue(operations)
    if due:
        for part in operations.parts_with(*operations.due()):
            mark_ready(part, MAX_ROWS)
    return sum(len(part.reap(MAX_ROWS)) for part in operations.parts_with(*operations.lost())) if expired else 0


def find(model: type[Model], pk: Pk, token: UUID, *, using: str | None = None) -> Claim:
    """Return the claim on a row by its token; raise ``LeaseLost`` if it has ended or never existed."""
    operations = _operations(model, using)
    instance = operations.rows.filter(pk=pk, state_claim=token).first()
    return _standing(operations, pk, instance, token)


def of_instance(instance: "StatorModel", token: UUID) -> Claim:
    """Return the claim for a token on an object as it was just read; raise ``LeaseLost`` if it has ended."""
    operations = _operations(type(instance), home_of(instance))
    return _standing(operations, instance.pk, instance if instance.state_claim == token else None, token)


def _standing(operations: Operations, pk: Pk, instance: "Instance | None", token: UUID) -> Claim:
    if instance is None:
        raise LeaseLost(f"{operations.label} {pk} is not held by this claim: it has ended, or its lease ran out")
    if (field := operations.state_field).state_of(instance) is None:
        raise LeaseLost(f"{operations.label} {pk} is in state {field.of(instance)!r}, which this code does not know")
    return complete([_claim_of(operations, instance, token)])[0]


def find_many(model: type[Model], tokens: Mapping[Key, UUID], *, using: str | None = None) -> list[Claim]:
    """Return the claims on rows by their tokens; claims that have ended are left out."""
    operations = _operations(model, using)
    rows = operations.rows.filter(pk__in=list(tokens))
    state_of = operations.state_field.state_of
    known = [row for row in rows if tokens[row.pk] == row.state_claim and state_of(row) is not None]
    return complete([_claim_of(operations, row, tokens[row.pk]) for row in known])


def hold(
    claim: Claim,
    key: Hashable,
    build: Callable[..., tuple[Expression, Q]],
    values: Mapping[str, object],
    fields: Mapping[str, Field],
    *,
    also: Statement,
    then: Callable[[], None],
    returned: tuple[str, ...] = (),
) -> Row | None:
    """Renew a lease; return the database's time, the end of the lease, and the ``returned`` columns.

    Return None if the claim has ended, its lease ran out, or its row does not meet the condition.

    ``build``: returns the end of the lease and the condition of the row for these values, or for parameters in their
    places: if the database can do it with one statement, that is compiled once for each ``key``.
    ``fields``: the fields that convert the values.
    ``also``: continues the WITH of that statement, with what the program keeps of its claim; it reads ``done``.
    ``then``: writes the same by statements of its own, in the transaction that has renewed the lease.
    """
    if claim.operations.capabilities.writes_in_with:
        return program_claims.hold(claim, key, build, values, fields, also=also, returned=returned)
    return _hold(claim.operations, claim, build(**values), then, returned)


def insert_at_once(model: type[Model], new: Insertion, *, using: str | None = None) -> list[Instance] | list[Row]:
    """Insert rows with one statement; return them, or the columns that ``new`` names, in order.

    Return nothing, and insert nothing, if the condition is not met, a unique value is taken or the database cannot do
    this.
    """
    # An insert depends on no setting, and reading all of them takes longer than the rest.
    operations = _cached.get(_key_of(owner_of(model), using, "")) or _operations(model, using)
    connection = operations.connection
    return inserts.insert(operations, new, connection) if capabilities_of(connection).inserts_from_json else []


def end(ends: Sequence[Ended], note: object = None, *, where: Q | None = None) -> Written:
    """End claims of one model with outcomes of one kind.

    Claims that had ended before, claims whose leases ran out, and claims on rows that do not match ``where`` are
    ``lost`` in the result; nothing is written for them. The result has the database's time, from which waiting rows are
    due, if one statement did it all. Raises ``ValueError`` if the claims belong to several models or databases.

    ``note``: for the effects of the app, which write what it keeps of its claims.
    ``where``: the statement is kept by it, so its values must have hashes.
    """
    operations, claims = ends[0][0].operations, [claim for claim, _ in ends]
    others = [each.operations for each in claims if each.operations is not operations]
    if any((each.model, each.alias) != (operations.model, operations.alias) for each in others):
        raise ValueError("the claims belong to several models or databases; make one call for each")
    if any(each.part != operations.part for each in others):
        by_part: dict[object, list[Ended]] = defaultdict(list)
        for ended in ends:
            by_part[ended[0].operations.part].append(ended)
        return Written.total([end(each, note, where=where) for each in by_part.values()])
    # One statement changes a row once, and its condition is about one row.
    fits = len(claims) == 1 or (where is None and len({claim.pk for claim in claims}) == len(claims))
    written = _end_at_once(list(ends), note, where) if fits and operations.capabilities.writes_in_with else None
    if written is None:
        written = _end(operations, list(ends), note, where)
    transaction.on_commit(partial(tell, operations, written, claims), using=operations.alias)
    if [claim for claim in claims if claim.state.may_be_woken]:
        announce(operations.model, operations.alias)
    return written


def moved(
    claim: Claim, to: State | str, values: dict[str, object] | None = None, *, failure: Failure | None = None
) -> Moved:
    """Return the outcome that moves the row of a claim, for :func:`end`.

    ``values``: for exactly the fields that the state ``saves``. Raises ``ValueError`` if the fields differ or no such
    transition is declared.
    """
    if values is not None and set(values) != set(claim.state.saves):
        own = ", ".join(claim.state.saves) or "nothing"
        raise ValueError(f"{claim.state.name} saves {own}; give values for exactly these, not for {sorted(values)}")
    moves = claim.state.moves
    if type(to) is not str or (known := moves.get(to)) is None:
        target = named_state(claim.operations.model, to)
        if target not in claim.state.children:
            raise ValueError(f"{claim.state.name} has no transition to {target.name}")
        known = moves[target.name] = Moved(target)
    return Moved(known.to, failure, values)


def longest_lease(model: type[Model], *, using: str | None = None) -> float:
    """Return the longest possible lease in seconds; a later end means that the database's clock was set back."""
    return _operations(model, using).longest_lease


def preparing() -> Preparing:
    """Return a context for preparing the work; it turns a failure of the database inside into ``NotBegun``."""
    return PREPARING


def _key_of(owner: type[Model], using: str | None, worker: str) -> tuple[type[Model], str, str]:
    return owner, using or router.db_for_write(owner), worker or _process_id(os.getpid())


def _operations(model: type[Model], using: str | None, worker: str = "") -> Operations:
    """Return cached operations, which keep their compiled statements."""
    owner, settings = owner_of(model), latest_settings()
    key = _key_of(owner, using, worker)
    operations = _cached.get(key)
    if operations is None or operations.settings is not settings:
        if len(_cached) >= MAX_CACHED:
            _cached.clear()
        operations = _cached[key] = operations_for(owner, settings, key[2], key[1])
        operations.for_programs = True
    return operations


# By model, database and worker.
_cached: dict[tuple[type[Model], str, str], Operations] = {}


@lru_cache(maxsize=1)
def _process_id(pid: int) -> str:
    """Return the worker id of this process, a new one after a fork. All its threads count in the same statistics."""
    return new_worker_id()


def _in_turn(rows: QuerySet[M]) -> QuerySet[M]:
    return rows.order_by(place_in_line(), "pk")


def _claim_of(operations: Operations, instance: Instance, token: UUID, claimed: float | None = None) -> Claim:
    """Return the claim on a row; without the time of the claim, its lease is counted from now."""
    field = operations.state_field
    state = field.states[instance.__dict__[field.attname]]
    return Claim(operations.part_with(instance), instance, state, token, claimed or time.monotonic())


@retrying
def _claim(
    operations: Operations,
    lock: Callable[[], list[Pk]],
    lease: float | Expression,
    first: Callable[[], bool] | None,
    then: Callable[[list[Claim]], list[Claim]] | None,
) -> list[Claim]:
    token, claimed = new_token(operations.worker_id), time.monotonic()
    until = lease if hasattr(lease, "resolve_expression") else columns.after(lease)
    with operations.transaction():
        if (first is not None and not first()) or not (picked := lock()):
            return []
        # If a program loses its lease, that says nothing about the object, so the count of crashes is reset.
        changes = {**columns.claiming_due(operations.state_field, token, until), "state_crashes": 0}
        taken = {row.pk: row for row in take(operations.rows.filter(pk__in=picked), token, changes)}
        claims = [_claim_of(operations, taken[pk], token, claimed) for pk in picked if pk in taken]
        for claim in claims:
            if claim.unreadable is not None:
                raise claim.unreadable
        if then is None:
            return claims
        kept = then(claims)
        if others := [claim.pk for claim in claims if claim not in kept]:
            operations.rows.filter(pk__in=others, state_claim=token).update(**columns.releasing())
    return kept


@retrying
def _hold(
    operations: Operations,
    claim: Claim,
    renewal: tuple[Expression, Q],
    then: Callable[[], None],
    returned: tuple[str, ...],
) -> Row | None:
    until, where = renewal
    with operations.transaction():
        if not program_claims.held(operations, claim.pk, claim.token).filter(where).update(state_locked_until=until):
            return None
        then()
        held = operations.rows.filter(pk=claim.pk)
        row: Row = held.values_list(Now(), "state_locked_until", *returned).get()
    return row


def _end_at_once(ended: list[Ended], note: object, where: Q | None) -> Written | None:
    """End all of these claims, or none and return None."""
    batch = OutcomeBatch.of(ended, note, AtOnce(where))
    operations = batch.operations
    if len(ended) == 1:
        operations = operations.division.near(batch.claims[0].instance)
    try:
        with operations.transaction() if operations.connection.in_atomic_block else nullcontext():
            return operations.records.record_at_once(batch)
    except DatabaseError as error:
        if is_retryable(error):
            return None
        raise


@retrying
def _end(operations: Operations, ended: list[Ended], note: object, where: Q | None) -> Written:
    with operations.handler_transaction():
        held = {claim.pk: claim for claim in operations.lock_claimed([claim for claim, _ in ended])}
        # Only now, because the lock may have been waited for.
        in_time = operations.rows.filter(pk__in=list(held), state_locked_until__gt=Now())
        ending = in_time if where is None else in_time.filter(where)
        valid = {held[pk] for pk in ending.values_list("pk", flat=True)}
        written = operations.record([(claim, outcome) for claim, outcome in ended if claim in valid], note=note)
        written.lost += [claim for claim, _ in ended if claim not in valid]
    return written
