"""Moves by hand and by methods of models: those that are not an outcome of an attempt or a duty of workers."""

from collections.abc import Mapping
from functools import partial

from django.db import transaction
from django.db.models import Model, QuerySet

from stator import signals
from stator.exceptions import ProtectedState
from stator.graph.running import RUNNING
from stator.graph.states import State
from stator.rows import columns, followers
from stator.rows.actions import Action, traceable
from stator.rows.followers import HAND, HandAct, moved
from stator.rows.locking import Locked, in_batches
from stator.rows.meta import graph_of, named_state, owner_of
from stator.rows.rollbacks import on_rollback
from stator.rows.state_column import state_field
from stator.rows.wakeup import announce


def state_by_hand(model: type[Model], state: State | str) -> State:
    """Return the state of that name; raise ``ProtectedState`` if only the framework enters it."""
    named = named_state(model, state)
    if not named.enter_by_hand:
        graph = graph_of(model)
        free = [other.name for other in graph.states.values() if other.enter_by_hand]
        raise ProtectedState(
            f"{graph.__name__}.{named.name} can be entered only by the framework, not by hand; "
            f"you can move objects to {', '.join(free)}"
        )
    return named


def move_by_hand(
    queryset: QuerySet[Model],
    state: State | str,
    *,
    actor: str = "",
    reason: str = "",
    also: Mapping[str, object] | None = None,
    action: Action | None = None,
    start_over: bool = False,
) -> int:
    """Call :func:`move_rows`; raise ``ProtectedState`` if only the framework makes such a move."""
    target = state_by_hand(queryset.model, state)
    return move_rows(
        queryset, target, actor=actor, reason=reason, also=also, by_hand=True, action=action, start_over=start_over
    )


def move_rows(
    queryset: QuerySet[Model],
    state: State | str,
    *,
    actor: str = "",
    reason: str = "",
    also: Mapping[str, object] | None = None,
    by_hand: bool = False,
    kind: str = HAND,
    action: Action | None = None,
    start_over: bool = False,
) -> int:
    """Move every row of ``queryset`` to any ``state``, ending any claim; return how many.

    Use it in methods of a model that decide themselves which of its objects may go there. Rows are locked in the order
    of their primary keys, in batches; each batch is a transaction of its own unless the caller has one open. ``also``:
    further columns to write with the move. ``by_hand``: raise ``ProtectedState`` for a row in a state with
    ``leave_by_hand=False``; its batch is not moved. ``kind``: of the entry in the history. ``action``: of which the
    moves are a part, to be undone with it. ``start_over``: do not continue a visit that failed, and its steps.
    """
    target = named_state(queryset.model, state)
    owner, act = owner_of(queryset.model), HandAct(target=target, actor=actor, reason=reason, kind=kind, action=action)

    def move(using: str, rows: QuerySet[Model], before: list[Locked]) -> int:
        if by_hand:
            _check_left(owner, before)
        own = also if also and queryset.model._meta.concrete_model is owner else {}
        if also and not own:
            # The queryset's own model is used: under multi-table inheritance a column may be in the child's table.
            QuerySet(queryset.model, using=using).filter(pk__in=[row.pk for row in before]).update(**also)
        changes = entering_from(owner, target, before, start_over=start_over)
        return move_locked(rows, before, target, {**(traceable(changes) if action else changes), **own}, act)

    return in_batches(queryset, move)


def entering_from(
    owner: type[Model], target: State, before: list[Locked], *, start_over: bool = False
) -> columns.Changes:
    """Return the changes of locked rows that move."""
    return columns.entering(state_field(owner), target, {was.state for was in before}, start_over=start_over)


def move_locked(
    rows: QuerySet[Model], before: list[Locked], target: State, changes: columns.Changes, act: HandAct
) -> int:
    """Move rows that are locked, with what precedes and follows; return how many."""
    owner, using, pks = rows.model, str(rows.db), [row.pk for row in before]
    followers.by_hand(rows, pks, act)
    count = rows.update(**changes)
    moved(owner, using, target.name, pks, before)
    tell_moves(owner, using, before, target)
    _note_own(owner, using, set(pks), target)
    return count


def _note_own(owner: type[Model], using: str, pks: set[object], target: State) -> None:
    """Note in an attempt that moves its own object by hand: its claim has ended, and its result will be refused."""
    for claim in RUNNING.get() or ():
        if getattr(claim, "pk", None) in pks and owner_of(claim.operations.model) is owner:
            on_rollback(using, partial(setattr, claim, "own_end", claim.own_end))
            claim.own_end = f"moved it to {target.name}"


def _check_left(owner: type[Model], rows: list[Locked]) -> None:
    graph = graph_of(owner)
    kept = kept_states(owner)
    if was := next((was for was in rows if was.state in kept), None):
        raise ProtectedState(
            f"{owner._meta.label} {was.pk} is in {graph.__name__}.{was.state}, which only the framework or a method of "
            f"{owner.__name__} can leave, not a move by hand"
        )


def kept_states(model: type[Model]) -> list[str]:
    """Return the names of the states that objects cannot leave by hand."""
    return [state.name for state in graph_of(model).states.values() if not state.leave_by_hand]


def write_by_hand(
    queryset: QuerySet[Model],
    changes: columns.Changes,
    *,
    actor: str = "",
    reason: str = "",
    action: Action | None = None,
) -> int:
    """Write framework columns of every row of ``queryset`` without a move, and wake workers; return how many.

    A history entry is written only if ``actor`` is given. ``action``: of which the changes are a part.
    """
    owner, act = owner_of(queryset.model), HandAct(actor=actor, reason=reason, action=action)

    def write(using: str, rows: QuerySet[Model], before: list[Locked]) -> int:
        announce(owner, using)
        followers.by_hand(rows, [row.pk for row in before], act)
        return rows.update(**(traceable(changes) if action else changes))

    return in_batches(queryset, write)


def tell_moves(owner: type[Model], using: str, before: list[Locked], target: State) -> None:
    """Send the moves, and that rows are ready, once the transaction has committed."""
    if not before:
        return
    moves = [signals.Move(was.pk, was.state, target.name) for was in before]
    arguments = {"moves": moves, "failures": [], "using": using}
    if signals.transitioned.has_listeners(owner):
        transaction.on_commit(partial(signals.send_logged, signals.transitioned, owner, **arguments), using=using)
    if columns.ready_at_once(target):
        announce(owner, using)
