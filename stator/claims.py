"""Claims for programs that are not workers of this framework, such as a queue, an API or a console.

Their rows are claimed, leased and fenced like workers' rows. A claim has a token, and writing after the claim has
ended raises :class:`~stator.exceptions.LeaseLost` and changes nothing. Any worker reaps a lease that has run out.
Unlike a worker, a program is refused from the end of its lease on, even if the lease is not reaped yet.
"""

import os
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.db import router, transaction
from django.db.models import Expression, Model, Q, QuerySet
from django.db.models.expressions import Combinable

from stator.conf import latest_settings
from stator.db import inserts, operations_for, single_statement
from stator.db.chores import mark_ready
from stator.db.claims import take
from stator.db.interface import Claim, Ended, Operations, Written, new_token, new_worker_id
from stator.db.lookups import first_of_each
from stator.db.preparing import PREPARING, Preparing
from stator.db.probe import overdue
from stator.db.repeat import retrying
from stator.db.retry import is_retryable
from stator.db.single_statement import ProgramRecords, Shape
from stator.db.values import Instance, Pk, Row
from stator.exceptions import LeaseLost
from stator.graph import State
from stator.graph.failures import Failure, bounded, describe
from stator.graph.outcomes import Moved, Outcome, Released, Waiting
from stator.rows import columns
from stator.rows.clock import Now
from stator.rows.indexes import place_in_line
from stator.rows.meta import home_of, named_state, owner_of
from stator.rows.pauses import Pauses
from stator.worker.announcements import tell

__all__ = [
    "Claim", "Failure", "LeaseLost", "ProgramRecords", "Row", "Shape", "bounded", "bring_up", "claim", "claim_at_once",
    "describe", "end_at_once", "find", "find_many", "first_of_each", "hold", "hold_at_once", "insert_at_once",
    "is_retryable", "longest_lease", "move", "move_many", "of_instance", "preparing", "release", "release_at_once",
    "retry", "retry_at_once",
]  # fmt: skip

# The most rows that one call marks ready, and the most leases that it ends; workers or the next call do the rest.
MAX_ROWS = 1000

# The most operations to cache: one for each model, database and named worker, with its compiled statements.
MAX_CACHED = 250

# Claims, each with the values that the state ``saves``, or None.
Ends = Sequence[tuple[Claim, dict[str, Any] | None]]

Pick = Callable[[QuerySet[Any]], QuerySet[Any]]


def claim(
    model: type[Model],
    limit: int = 1,
    *,
    pick: Pick | None = None,
    lease: float | Expression | None = None,
    worker: str = "",
    using: str | None = None,
    first: Callable[[], bool] | None = None,
    then: Callable[[list[Claim]], list[Claim]] | None = None,
    among: Pick | None = None,
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
    operations = _operations(model, using, worker)
    operations.pauses = Pauses.of(operations.label, operations.read_pauses())
    until = operations.settings.LEASE if lease is None else lease

    def locked() -> list[Pk]:
        rows = operations.claimable(operations.automatic)
        return operations.lock(
            (pick or _in_turn)(rows), limit, in_order=among is None, among=among(rows) if among else None
        )

    return _claim(operations, locked, until, first, then)


def claim_at_once(
    model: type[Model],
    key: Hashable,
    shape: Callable[[], Shape],
    *,
    values: Mapping[str, object],
    worker: str = "",
    using: str | None = None,
) -> tuple[list[Claim], bool]:
    """Claim rows and insert their records in one statement; return the claims, in no order, and the ``flag``.

    If it returns no claims, call :func:`claim`: the database cannot do this, nothing is ready, or the case is unusual.
    The statement is compiled once for each ``key``. ``shape``: returns the parts of the statement, see
    :class:`~stator.db.single_statement.Shape`. ``values``: the values of its parameters.
    """
    operations = _cached_operations(model, using, worker)
    if not operations.capabilities.writes_in_with:
        return [], False
    token = new_token(operations.worker_id)
    # The statement depends on no other setting.
    key = key, operations.settings.MAX_CRASHES, operations.longest_lease
    found, flag, since = single_statement.claim(operations, key, shape, token, values)
    states = operations.graph.states
    return [Claim(operations, instance, states[instance.state], token, since) for instance in found], flag


def bring_up(model: type[Model], *, using: str | None = None) -> int:
    """Mark due rows ready and end expired leases, up to 1,000 of each; return the number of leases ended.

    Workers do this anyway. A program that calls this before it claims does not depend on a running worker.
    """
    operations = _operations(model, using)
    due, expired = overdue(operations)
    if due:
        mark_ready(operations, MAX_ROWS)
    return len(operations.reap(MAX_ROWS)) if expired else 0


def find(model: type[Model], pk: Pk, token: UUID, *, using: str | None = None) -> Claim:
    """Return the claim on a row by its token; raise ``LeaseLost`` if it has ended or never existed."""
    operations = _cached_operations(model, using, "")
    found: Any = operations.rows.filter(pk=pk, state_claim=token).first()
    return _standing(operations, pk, found, token)


def of_instance(instance: Any, token: UUID) -> Claim:
    """Return the claim for a token on an object as it was just read; raise ``LeaseLost`` if it has ended."""
    operations = _cached_operations(type(instance), home_of(instance), "")
    return _standing(operations, instance.pk, instance if instance.state_claim == token else None, token)


def _standing(operations: Operations, pk: Pk, instance: Instance | None, token: UUID) -> Claim:
    if instance is None:
        raise LeaseLost(f"{operations.label} {pk} is not held by this claim: it has ended, or its lease ran out")
    if instance.state not in operations.graph.states:
        raise LeaseLost(f"{operations.label} {pk} is in state {instance.state!r}, which this code does not know")
    return _claim_of(operations, instance, token)


def find_many(model: type[Model], tokens: Mapping[Any, UUID], *, using: str | None = None) -> list[Claim]:
    """Return the claims on rows by their tokens; claims that have ended are left out."""
    operations = _cached_operations(model, using, "")
    rows: QuerySet[Any] = operations.rows.filter(pk__in=list(tokens))
    known = [row for row in rows if tokens[row.pk] == row.state_claim and row.state in operations.graph.states]
    return [_claim_of(operations, row, row.state_claim) for row in known]


def hold(claim: Claim, until: Combinable | datetime, *, where: Q = Q()) -> bool:  # noqa: B008 - immutable in all that matters
    """Set the end of a lease; return False if the claim has ended, its lease ran out or ``where`` does not match."""
    return _hold(claim.operations, claim, until, where)


def hold_at_once(
    claim: Claim,
    key: Hashable,
    build: Callable[[], tuple[QuerySet[Any], Mapping[str, object], tuple[str, ...], ProgramRecords]],
    values: Mapping[str, object],
) -> Row | None:
    """Update the row of a claim and its record in one statement, which is compiled once for each ``key``.

    ``build``: returns the rows, the changes, the names of columns to return, and the records to update.

    Return the database's time followed by these columns, or None if no row matches or the database cannot do this.
    """
    operations = claim.operations
    if not operations.capabilities.writes_in_with:
        return None
    found = single_statement.update(operations, key, build, values)
    return found[0] if found else None


def insert_at_once(
    model: type[Model],
    key: Hashable,
    condition: Callable[[], QuerySet[Model]],
    values: Mapping[str, object],
    shared: Mapping[str, object],
    rows: Sequence[Mapping[str, object]],
    *,
    using: str | None = None,
    fixed: tuple[str, ...] = (),
    later: bool = False,
    returning: tuple[str, ...] = (),
    unique: bool = True,
) -> list[Any]:
    """Insert rows with one statement, which is compiled once for each ``key``; return them in order.

    ``condition`` returns a queryset that must not be empty, and ``values`` are for its parameters. Return nothing, and
    insert nothing, if it is empty, a unique value is taken or the database cannot do this.

    ``shared``: values by attribute that all rows have.
    ``rows``: for each row the values of further fields, the same fields in all rows. Fields without a value take the
    database's defaults; a row is ready if its ``state_next_attempt`` has come.
    ``fixed``: the names of shared values that rarely change, which become part of the text.
    ``later``: ``state_next_attempt`` is given in seconds from the database's time.
    ``returning``: return these columns, among them the key, in place of instances.
    ``unique``: False if no value can be taken, which saves a savepoint.
    """
    # An insert depends on no setting, and reading all of them takes longer than the rest.
    operations = _cached.get(_key_of(owner_of(model), using, "")) or _cached_operations(model, using, "")
    if not operations.capabilities.inserts_from_json:
        return []
    return inserts.insert(
        operations, key, condition, values, shared, rows, fixed=fixed, later=later, returning=returning, unique=unique
    )


def end_at_once(ends: Ends, to: State | str, records: ProgramRecords, values: Mapping[str, object]) -> bool:
    """End claims of one model and database like :func:`move_many`, and update their records, with one statement.

    Return False if it did nothing: one of the claims has ended, or the database cannot do this. False means only that
    :func:`move_many` has to be called. ``records.copied`` maps fields of the records to the names of values.
    """
    able = ends[0][0].operations.capabilities.writes_in_with
    complete = all(values is None or set(values) == set(claim.state.saves) for claim, values in ends)
    if not able or not complete or len({claim.pk for claim, _ in ends}) < len(ends):
        return False
    ended: list[Ended] = [(claim, Moved(_target(claim, to), None, values)) for claim, values in ends]
    written = single_statement.end(ended, records, values)
    if written is not None:
        _announce_on_commit(ends[0][0].operations, written, [claim for claim, _ in ends])
    return written is not None


def retry_at_once(
    claim: Claim,
    records: ProgramRecords,
    values: Mapping[str, object],
    key: Hashable,
    only: Callable[[], QuerySet[Model]],
    *,
    failure: Failure | None = None,
    reason: str = "",
) -> datetime | None:
    """End a claim like :func:`retry` and update its record, with one statement; the row is ready again at once.

    Return the database's time, which is the row's due time. Return None if it did nothing: the claim has ended,
    ``only`` returns a queryset that is empty, or the database cannot do this. None means only that :func:`retry` or
    :func:`move` has to be called. ``key``: equal for equal querysets; ``values``: for their parameters and for the
    parameters of the records.
    """
    return _end_one_at_once(claim, Waiting(0.0, failure, reason), records, values, key, only)


def release_at_once(claim: Claim, records: ProgramRecords) -> bool:
    """End a claim like :func:`release` and delete its record, with one statement; False if it did nothing."""
    return _end_one_at_once(claim, Released(), records, {}, forget=True) is not None


def _end_one_at_once(
    claim: Claim,
    outcome: Outcome,
    records: ProgramRecords,
    values: Mapping[str, object],
    key: Hashable = None,
    only: Callable[[], QuerySet[Model]] | None = None,
    *,
    forget: bool = False,
) -> datetime | None:
    operations = claim.operations
    if not operations.capabilities.writes_in_with:
        return None
    written = single_statement.end([(claim, outcome)], records, values, key, only, forget=forget)
    if written is None:
        return None
    _announce_on_commit(operations, written, [claim])
    return written.at


def longest_lease(model: type[Model], *, using: str | None = None) -> float:
    """Return the longest possible lease in seconds; a later end means that the database's clock was set back."""
    return _cached_operations(model, using, "").longest_lease


def move(
    claim: Claim,
    to: State | str,
    *,
    values: dict[str, Any] | None = None,
    failure: Failure | None = None,
    then: Callable[[], None] | None = None,
) -> None:
    """End a claim with a move and write ``values`` with it; raise ``LeaseLost`` if the claim has ended.

    ``then`` is called in the same transaction. Raises ``ValueError`` if no such transition is declared.
    """
    # What the state saves anyway is written with the move.
    saved = values is not None and set(values) == set(claim.state.saves)
    _end(claim, Moved(_target(claim, to), failure, values if saved else None), None if saved else values, then)


def move_many(
    ends: Ends,
    to: State | str,
    *,
    then: Callable[[list[Claim]], None] | None = None,
) -> list[Claim]:
    """End claims of one model with the same move, each with its own values; return the claims that were lost.

    A lost claim had ended before, and nothing was written for it. ``then`` is called with the remaining claims in the
    same transaction. Values must be given for exactly the fields that the state ``saves``. The number of statements
    does not grow with the number of claims. Raises ``ValueError`` if no such transition is declared, the fields differ,
    or the claims belong to several models or databases.
    """
    if not ends:
        return []
    operations = ends[0][0].operations
    for claim, values in ends:
        if values is not None and set(values) != set(claim.state.saves):
            own = ", ".join(claim.state.saves) or "nothing"
            raise ValueError(f"{claim.state.name} saves {own}; give values for exactly these, not for {sorted(values)}")
    if any((each.operations.model, each.operations.alias) != (operations.model, operations.alias) for each, _ in ends):
        raise ValueError("the claims belong to several models or databases; make one call for each")
    moved: list[Ended] = [(claim, Moved(_target(claim, to), None, values)) for claim, values in ends]
    written = _write(operations, moved, then)
    _announce_on_commit(operations, written, [claim for claim, _ in ends])
    return written.lost


def retry(
    claim: Claim,
    *,
    after: float = 0.0,
    failure: Failure | None = None,
    reason: str = "",
    values: dict[str, Any] | None = None,
    then: Callable[[], None] | None = None,
) -> None:
    """End a claim without a move: the row is due again in ``after`` seconds, and the attempt is counted."""
    _end(claim, Waiting(after, failure, reason), values, then)


def release(
    claim: Claim,
    *,
    after: float = 0.0,
    values: dict[str, Any] | None = None,
    then: Callable[[], None] | None = None,
) -> None:
    """End a claim as if it had never been made: the row is due in ``after`` seconds, and the attempt is not counted."""
    _end(claim, Released(after), values, then)


def preparing() -> Preparing:
    """Return a context for preparing the work; it turns a failure of the database inside into ``NotBegun``."""
    return PREPARING


def _operations(model: type[Model], using: str | None, worker: str = "") -> Operations:
    operations = operations_for(owner_of(model), latest_settings(), worker or _process_id(os.getpid()), using)
    operations.recorded = None
    return operations


def _key_of(owner: type[Model], using: str | None, worker: str) -> tuple[type[Model], str, str]:
    return owner, using or router.db_for_write(owner), worker or _process_id(os.getpid())


def _cached_operations(model: type[Model], using: str | None, worker: str) -> Operations:
    """Return cached operations, which keep their compiled statements."""
    owner, settings = owner_of(model), latest_settings()
    key = _key_of(owner, using, worker)
    found = _cached.get(key)
    if found is None or found.settings is not settings:
        if len(_cached) >= MAX_CACHED:
            _cached.clear()
        found = _cached[key] = operations_for(owner, settings, key[2], key[1])
        found.recorded = None
    return found


# By model, database and worker.
_cached: dict[tuple[type[Model], str, str], Operations] = {}


@lru_cache(maxsize=1)
def _process_id(pid: int) -> str:
    """Return the worker id of this process, a new one after a fork. All its threads count in the same statistics."""
    return new_worker_id()


def _in_turn(rows: QuerySet[Any]) -> QuerySet[Any]:
    return rows.order_by(place_in_line(), "pk")


def _claim_of(operations: Operations, instance: Any, token: UUID) -> Claim:
    return Claim(operations, instance, operations.graph.states[instance.state], token, time.monotonic())


@retrying
def _claim(
    operations: Operations,
    locked: Callable[[], list[Pk]],
    lease: float | Expression,
    first: Callable[[], bool] | None,
    then: Callable[[list[Claim]], list[Claim]] | None,
) -> list[Claim]:
    token = new_token(operations.worker_id)
    until = lease if hasattr(lease, "resolve_expression") else columns.after(lease)
    with operations.transaction():
        if first is not None and not first():
            return []
        if not (picked := locked()):
            return []
        # If a program loses its lease, that says nothing about the object, so the count of crashes is reset.
        changes = {**columns.claiming_due(token, until), "state_crashes": 0}
        found = {row.pk: row for row in take(operations.rows.filter(pk__in=picked), token, changes)}
        # The claims keep the cached operations with their statements, and not these operations with their own pauses.
        cached = _cached_operations(operations.model, operations.alias, operations.worker_id)
        claims = [_claim_of(cached, found[pk], token) for pk in picked if pk in found]
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
def _hold(operations: Operations, claim: Claim, until: Combinable | datetime, where: Q) -> bool:
    mine = operations.rows.filter(pk=claim.pk, state_claim=claim.token, state_locked_until__gt=Now())
    with operations.transaction():
        return bool(mine.filter(where).update(state_locked_until=until))


def _target(claim: Claim, to: State | str) -> State:
    target = named_state(claim.operations.model, to)
    if target not in claim.state.children:
        raise ValueError(f"{claim.state.name} has no transition to {target.name}")
    return target


def _end(claim: Claim, outcome: Outcome, values: dict[str, Any] | None, then: Callable[[], None] | None) -> None:
    operations = claim.operations

    def also(kept: list[Claim]) -> None:
        if not kept:
            raise LeaseLost(f"{operations.label} {claim.pk} is not held by this claim any more; nothing was written")
        if values:
            operations.rows.filter(pk=claim.pk).update(**values)
        if then is not None:
            then()

    _announce_on_commit(operations, _write(operations, [(claim, outcome)], also), [claim])


@retrying
def _write(operations: Operations, ended: list[Ended], then: Callable[[list[Claim]], None] | None) -> Written:
    """Record the outcomes of claims that still hold their rows and have not expired; other claims are ``lost``."""
    with operations.handler_transaction():
        held = {claim.pk: claim for claim in operations.lock_claimed([claim for claim, _ in ended])}
        in_time = operations.rows.filter(pk__in=list(held), state_locked_until__gt=Now()).values_list("pk", flat=True)
        valid = {held[pk] for pk in in_time}
        written = operations.record([(claim, outcome) for claim, outcome in ended if claim in valid])
        written.lost += [claim for claim, _ in ended if claim not in valid]
        if then is not None:
            then([claim for claim, _ in ended if claim in valid])
    return written


def _announce_on_commit(operations: Operations, written: Written, ended: list[Claim]) -> None:
    transaction.on_commit(lambda: tell(operations, written, ended), using=operations.alias)
