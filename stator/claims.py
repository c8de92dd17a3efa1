"""Claims for programs that are no workers of this framework: what a queue, an API or a console hands out.

Their rows are claimed, leased and fenced as those of workers are: a claim carries a token, whoever writes after its
claim has ended gets :class:`~stator.exceptions.LeaseLost` and changes nothing, and a lease that runs out is reaped by
any worker. Stricter than for workers, a program that is late is refused from the end of its lease on, reaped or not.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from stator import columns
from stator.conf import load_settings
from stator.db import Operations, operations_for
from stator.db.chores import mark_ready
from stator.db.claim import Claim, new_token, new_worker_id
from stator.db.look import overdue
from stator.db.preparing import PREPARING, Preparing
from stator.db.retry import is_retryable, retrying
from stator.db.written import Ended, Written
from stator.exceptions import LeaseLost
from stator.failures import Failure, bounded, describe
from stator.graph import State
from stator.indexes import place_in_line
from stator.moves import named_state, owner_of
from stator.outcomes import Moved, Outcome, Released, Waiting
from stator.pauses import Pauses
from stator.worker.recorder import tell

__all__ = [
    "Claim", "Failure", "LeaseLost", "bounded", "bring_up", "claim", "describe", "find", "find_many", "hold",
    "is_retryable", "longest_lease", "move", "move_many", "preparing", "release", "retry",
]  # fmt: skip

# Rows that one call marks ready, or whose leases it ends; what is left is for workers, or for the next call.
MOST = 1000

Pick = Callable[[QuerySet[Any]], QuerySet[Any]]


def claim(
    model: Any,
    limit: int = 1,
    *,
    pick: Pick | None = None,
    lease: Any = None,
    worker: str = "",
    using: str | None = None,
    first: Callable[[], bool] | None = None,
    then: Callable[[list[Claim]], list[Claim]] | None = None,
    among: Pick | None = None,
) -> list[Claim]:
    """Claim up to ``limit`` ready rows; ``claim.instance`` is the object.

    ``pick``: from the rows that may be claimed at all the queryset of those that are meant, in their order; by default
    all, in the usual order, since when they are due. ``lease``: seconds, or an expression that gives the moment until
    which each row is held; by default the setting. ``worker``: twelve hexadecimal digits that the token begins with.
    ``first``: called at the beginning of the transaction in which they are claimed, to take locks, say; nothing is
    claimed where it is false. ``then``: called with the claims in that transaction; what it does not return is handed
    back as if it had not been claimed. Rows that somebody else is claiming, or has locked, are passed over. Where a
    constraint of the database forbids what another claim has just made impossible, ``IntegrityError``: nothing was
    claimed. ``among``: rows that an index has in the same order, with an annotation ``sought`` that filters them; give
    it if ``pick`` may match few of very many rows.
    """
    operations = _operations(model, using, worker)
    operations.pauses = Pauses.of(operations.label, operations.read_pauses())
    until = operations.settings.LEASE if lease is None else lease

    def locked() -> list[Any]:
        rows = operations.claimable(list(operations.graph.automatic_states))
        return operations.lock(
            (pick or _in_turn)(rows), limit, in_order=among is None, among=among(rows) if among else None
        )

    return _claim(operations, locked, until, first, then)


def bring_up(model: Any, *, using: str | None = None) -> int:
    """Mark rows ready that have come due, and end leases that ran out; return how many leases that were.

    Workers do so by themselves; with this, programs that claim do not depend on one.
    """
    operations = _operations(model, using)
    due, expired = overdue(operations)
    if due:
        mark_ready(operations, MOST)
    return len(operations.reap(MOST)) if expired else 0


def find(model: Any, pk: Any, token: UUID, *, using: str | None = None) -> Claim:
    """The claim that a token stands for; ``LeaseLost`` when it has ended or never was."""
    operations = _operations(model, using)
    instance = operations.rows.filter(pk=pk, state_claim=token).first()
    if instance is None:
        raise LeaseLost(f"{operations.label} {pk} is not held by this claim: it has ended, or its lease ran out")
    if instance.state not in operations.graph.states:
        raise LeaseLost(f"{operations.label} {pk} is in state {instance.state!r}, which this code does not know")
    return _claim_of(operations, instance, token)


def find_many(model: Any, tokens: Mapping[Any, UUID], *, using: str | None = None) -> list[Claim]:
    """The claims that tokens, given by the keys of their rows, stand for; those that have ended are left out."""
    operations = _operations(model, using)
    rows = operations.rows.filter(pk__in=list(tokens))
    known = [row for row in rows if tokens[row.pk] == row.state_claim and row.state in operations.graph.states]
    return [_claim_of(operations, row, row.state_claim) for row in known]


def hold(claim: Claim, until: Any, *, where: Q = Q()) -> bool:  # noqa: B008 - immutable in all that matters
    """Set the end of a lease to a moment; False when it has run out, the claim ended, or the row is not ``where``."""
    return _hold(claim.operations, claim, until, where)


def longest_lease(model: Any, *, using: str | None = None) -> float:
    """The most seconds for which a row can be held at once: what is further away is taken for a clock set back."""
    return _operations(model, using).longest_lease


def move(
    claim: Claim,
    to: State | str,
    *,
    values: dict[str, Any] | None = None,
    failure: Failure | None = None,
    then: Callable[[], None] | None = None,
) -> None:
    """End a claim with a move, and write further columns with it; ``LeaseLost`` when the claim has ended.

    ``then`` is called in the same transaction. ``ValueError`` where no such transition is declared.
    """
    _end(claim, Moved(_target(claim, to), failure), values, then)


def move_many(
    ends: Sequence[tuple[Claim, dict[str, Any] | None]],
    to: State | str,
    *,
    then: Callable[[list[Claim]], None] | None = None,
) -> list[Claim]:
    """End claims of one model each with the same move and its own values; return those of which nothing was written.

    Those have ended. A handful of statements, however many they are. The values are of all fields that their state
    ``saves``. ``then`` is called in the same transaction with the others. ``ValueError`` where no such transition is
    declared, or the values are of other fields.
    """
    if not ends:
        return []
    operations = ends[0][0].operations
    for claim, values in ends:
        if values is not None and set(values) != set(claim.state.saves):
            raise ValueError(f"{claim.state.name} saves {', '.join(claim.state.saves) or 'nothing'}; not {set(values)}")
    if any((each.operations.model, each.operations.alias) != (operations.model, operations.alias) for each, _ in ends):
        raise ValueError("the claims are of several models or databases; end those of each by a call of its own")
    moved: list[Ended] = [(claim, Moved(_target(claim, to), None, values)) for claim, values in ends]
    return _tell(operations, _write(operations, moved, then)).lost


def retry(
    claim: Claim,
    *,
    after: float = 0.0,
    failure: Failure | None = None,
    reason: str = "",
    values: dict[str, Any] | None = None,
    then: Callable[[], None] | None = None,
) -> None:
    """End a claim without a move: the row is due again ``after`` so many seconds, and the attempt counts."""
    _end(claim, Waiting(after, failure, reason), values, then)


def release(claim: Claim, *, values: dict[str, Any] | None = None, then: Callable[[], None] | None = None) -> None:
    """End a claim as if it had never been: the row is ready and the attempt is not counted."""
    _end(claim, Released(), values, then)


def preparing() -> Preparing:
    """Return a block for what precedes the work: if the database fails in it, ``NotBegun`` is raised."""
    return PREPARING


def _operations(model: Any, using: str | None, worker: str = "") -> Operations:
    return operations_for(owner_of(model), load_settings(), worker or _process_id(os.getpid()), using)


@lru_cache(maxsize=1)
def _process_id(pid: int) -> str:
    """Of this process, not of one that it was forked from: its threads add to the statistics where they did before."""
    return new_worker_id()


def _in_turn(rows: QuerySet[Any]) -> QuerySet[Any]:
    return rows.order_by(place_in_line(), "pk")


def _claim_of(operations: Operations, instance: Any, token: UUID) -> Claim:
    return Claim(operations, instance, operations.graph.states[instance.state], token, time.monotonic())


@retrying
def _claim(operations: Operations, locked: Callable[[], list[Any]], lease: Any, first: Any, then: Any) -> list[Claim]:
    token = new_token(operations.worker_id)
    until = lease if hasattr(lease, "resolve_expression") else columns.after(lease)
    with operations.transaction():
        if first is not None and not first():
            return []
        if not (picked := locked()):
            return []
        # A program that lost its lease is no worker process that an object ended: the count of those begins anew.
        operations.rows.filter(pk__in=picked).update(**columns.claiming_due(token, until), state_crashes=0)
        found = {row.pk: row for row in operations.rows.filter(pk__in=picked, state_claim=token)}
        claims = [_claim_of(operations, found[pk], token) for pk in picked if pk in found]
        if then is None:
            return claims
        kept = then(claims)
        if others := [claim.pk for claim in claims if claim not in kept]:
            operations.rows.filter(pk__in=others, state_claim=token).update(**columns.releasing())
    return kept


@retrying
def _hold(operations: Operations, claim: Claim, until: Any, where: Q) -> bool:
    mine = operations.rows.filter(pk=claim.pk, state_claim=claim.token, state_locked_until__gt=Now())
    with operations.transaction():
        return bool(mine.filter(where).update(state_locked_until=until))


def _target(claim: Claim, to: State | str) -> State:
    target = named_state(claim.operations.model, to)
    if target not in claim.state.children:
        raise ValueError(f"{claim.state.name} has no transition to {target.name}")
    return target


def _end(claim: Claim, outcome: Outcome, values: dict[str, Any] | None, then: Any) -> None:
    operations = claim.operations

    def also(kept: list[Claim]) -> None:
        if not kept:
            raise LeaseLost(f"{operations.label} {claim.pk} is not held by this claim any more; nothing was written")
        if values:
            operations.rows.filter(pk=claim.pk).update(**values)
        if then is not None:
            then()

    _tell(operations, _write(operations, [(claim, outcome)], also))


@retrying
def _write(operations: Operations, ended: list[Ended], then: Callable[[list[Claim]], None] | None) -> Written:
    """Record what ends claims that stand and whose leases have not run out; the others are ``lost``."""
    with operations.handler_transaction():
        held = {claim.pk: claim for claim in operations.lock_claimed([claim for claim, _ in ended])}
        in_time = operations.rows.filter(pk__in=list(held), state_locked_until__gt=Now()).values_list("pk", flat=True)
        standing = {held[pk] for pk in in_time}
        written = operations.record([(claim, outcome) for claim, outcome in ended if claim in standing])
        written.lost += [claim for claim, _ in ended if claim not in standing]
        if then is not None:
            then([claim for claim, _ in ended if claim in standing])
    return written


def _tell(operations: Operations, written: Written) -> Written:
    transaction.on_commit(lambda: tell(operations, written), using=operations.alias)
    return written
