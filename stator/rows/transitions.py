"""Moves by hand, by events and by methods of models: all that are not an outcome of an attempt or a duty of workers."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from django.db import transaction
from django.db.models import F, Model, QuerySet

from stator import signals
from stator.exceptions import ProtectedState
from stator.graph.attempt_log import RUNNING
from stator.graph.states import AwaitedEvent, State
from stator.rows import columns
from stator.rows.actions import Action, traceable
from stator.rows.clock import Now, Seconds
from stator.rows.keys import key_of
from stator.rows.life import Life
from stator.rows.locking import BATCH, Locked, features_of, in_batches, lock_options, parts_of, read_locked
from stator.rows.meta import graph_of, named_state, options_of, owner_of
from stator.rows.reports import LEFT, REASON_LENGTH, Event, History, events_of, events_of_visit, keep_entries
from stator.rows.rollbacks import on_rollback
from stator.rows.state_column import state_field
from stator.rows.waits import wake
from stator.rows.watches import WaiterHeld, Watch, watchers_of, watches_of
from stator.scopes import in_parts


class HasLife(Protocol):
    """A row as it was before a move, or the claim on it."""

    @property
    def pk(self) -> Any: ...
    @property
    def state(self) -> State | str: ...
    @property
    def life(self) -> Life: ...


def state_by_hand(model: type[Model], state: State | str) -> State:
    """Return the state of that name; raise ``ProtectedState`` if only the framework enters it."""
    found = named_state(model, state)
    if not found.enter_by_hand:
        graph = graph_of(model)
        free = [other.name for other in graph.states.values() if other.enter_by_hand]
        raise ProtectedState(
            f"{graph.__name__}.{found.name} can be entered only by the framework, not by hand; "
            f"you can move objects to {', '.join(free)}"
        )
    return found


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
    kind: History.Kind = History.Kind.HAND,
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
    owner = owner_of(queryset.model)

    def move(using: str, rows: QuerySet[Model], before: list[Locked]) -> int:
        if by_hand:
            _check_left(owner, before)
        own = also if also and queryset.model._meta.concrete_model is owner else {}
        if also and not own:
            # The queryset's own model is used: under multi-table inheritance a column may be in the child's table.
            QuerySet(queryset.model, using=using).filter(pk__in=[row.pk for row in before]).update(**also)
        keep_moves(owner, using, [row.pk for row in before], target, reason, kind, actor=actor)
        changes = _noted(action, rows, before, _entering(owner, target, before, start_over=start_over))
        return _move_locked(rows, before, target, {**changes, **own})

    return in_batches(queryset, move)


def _entering(owner: type[Model], target: State, before: list[Locked], *, start_over: bool = False) -> columns.Changes:
    return columns.entering(state_field(owner), target, {row.state for row in before}, start_over=start_over)


def _move_locked(rows: QuerySet[Model], before: list[Locked], target: State, changes: columns.Changes) -> int:
    """Move rows that are locked, with what follows, and return how many; their history is written before."""
    owner, using, pks = rows.model, str(rows.db), [row.pk for row in before]
    moved = rows.update(**changes)
    note_left(owner, using, before)
    entered(owner, using, target.name, pks)
    tell_moves(owner, using, before, target)
    _note_own(owner, using, set(pks), target)
    return moved


def _noted(
    action: Action | None, rows: QuerySet[Model], before: list[Locked], changes: columns.Changes
) -> columns.Changes:
    """Return the changes to write to rows after an action, if they are a part of one, has stored what they were."""
    if action is None:
        return changes
    action.note(rows, len(before))
    return traceable(changes)


def _note_own(owner: type[Model], using: str, pks: set[object], target: State) -> None:
    """Note in an attempt that moves its own object by hand: its claim has ended, and its result will be refused."""
    for claim in RUNNING.get() or ():
        if getattr(claim, "pk", None) in pks and owner_of(claim.operations.model) is owner:
            on_rollback(using, partial(setattr, claim, "own_end", claim.own_end))
            claim.own_end = f"moved it to {target.name}"


def _check_left(owner: type[Model], rows: list[Locked]) -> None:
    graph = graph_of(owner)
    kept = kept_states(owner)
    if row := next((row for row in rows if row.state in kept), None):
        raise ProtectedState(
            f"{owner._meta.label} {row.pk} is in {graph.__name__}.{row.state}, which only the framework or a method of "
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
    owner = owner_of(queryset.model)

    def write(using: str, rows: QuerySet[Model], before: list[Locked]) -> int:
        signals.announce(owner, using)
        if actor:
            keep_acts(owner, using, [row.pk for row in before], actor, reason)
        return rows.update(**_noted(action, rows, before, changes))

    return in_batches(queryset, write)


def apply_event(owner: type[Model], using: str, row: Locked, awaited: AwaitedEvent, event: Event) -> int:
    """Store an event that a locked object waits for, and do what it does; return how many more senders it needs."""
    rows: QuerySet[Model] = QuerySet(owner, using=using).filter(pk=row.pk)
    needed = awaited.needed(rows.get)
    missing = needed - 1
    if missing:
        missing -= events_of_visit(owner, using, row.pk, row.life).filter(name=event.name).count()
    leads_to = awaited.target if missing <= 0 else None
    event.version = row.life.visit_after(row.state, leads_to) if leads_to else row.life.visit
    event.until, event.source, event.life = None, row.state, row.life.number
    event.to = leads_to.name if leads_to else ""
    event.save(using=using)
    if missing > 0:
        note_event(owner, using, row.pk, event, f"{needed - missing} of {needed}")
    elif leads_to is not None:
        keep_moves(owner, using, [row.pk], leads_to, event.described, History.Kind.EVENT, actor=event.sender)
        _move_locked(rows, [row], leads_to, _entering(owner, leads_to, [row]))
    else:
        note_event(owner, using, row.pk, event)
        rows.update(**columns.reopening())
        signals.announce(owner, using)
    return max(missing, 0)


def note_event(owner: type[Model], using: str, pk: object, event: Event, outcome: str = "") -> None:
    """Write a history entry of an event that does not move its object."""
    reason = f"{event.described} ({outcome})" if outcome else event.described
    keep_acts(owner, using, [pk], event.sender, reason, History.Kind.EVENT)


def entered(owner: type[Model], using: str, name: str, pks: Collection[object], *, wait: bool = True) -> None:
    """Do what follows when objects have entered a state; call it last in the transaction that moves them.

    Wakes the rows that waited for them, gives them the events kept for the state, and moves objects whose related
    objects are complete now: these objects themselves, and others. If another transaction holds one of the others,
    raises :class:`WaiterHeld` unless it may ``wait``.
    """
    wake(owner, using, name, pks)
    state = graph_of(owner).states.get(name)
    if pks and state is not None and kept_names(state):
        _give_kept(owner, using, state, pks)
    for watch in watches_of(owner):
        if watch.state.name == name:
            for some in parts_of(owner, pks):
                _follow(watch, using, some, wait=wait)
    for watch in watchers_of(owner):
        if name in watch.condition.in_:
            for some in parts_of(owner, pks):
                _complete(watch, using, some, wait=wait)


def _complete(watch: Watch, using: str, pks: list[object], *, wait: bool) -> None:
    """Move the objects that waited for the last of these related objects."""
    waiting = watch.not_handed_on(using, pks)
    if not waiting:
        return
    rows: QuerySet[Model] = QuerySet(watch.model, using=using)
    options = lock_options(watch.model, using)
    skips = not wait and features_of(using).has_select_for_update_skip_locked
    mine: list[object] = []
    for part in in_parts(rows.filter(pk__in=waiting)):
        locked = part.order_by("pk").select_for_update(skip_locked=skips, **options)
        mine += locked.values_list("pk", flat=True)
    if skips and (held := set(waiting).difference(mine)):
        raise WaiterHeld(watch.related_to(using, held, pks))
    try:
        _follow(watch, using, mine, wait=wait)
    except WaiterHeld as error:
        raise WaiterHeld(watch.related_to(using, error.pks, pks)) from error


def _follow(watch: Watch, using: str, pks: list[object], *, wait: bool) -> None:
    """Move objects that are locked, or were moved in this transaction, along an edge whose condition they meet."""
    owner, target, field = watch.model, watch.target, state_field(watch.model)
    rows: QuerySet[Model] = QuerySet(owner, using=using)
    there = rows.filter(pk__in=pks, **field.at(watch.state))
    met = rows.filter(watch.met(there), pk__in=pks, **field.at(watch.state))
    if before := read_locked(met.order_by("pk"), field):
        keys = [row.pk for row in before]
        if options_of(owner).history:
            keep_moves(owner, using, keys, target, watch.reason, History.Kind.MOVE)
        rows.filter(pk__in=keys).update(**columns.entering(field, target, {watch.state.name}))
        note_left(owner, using, before)
        entered(owner, using, target.name, keys, wait=wait)
        tell_moves(owner, using, before, target)


def kept_names(state: State) -> list[str]:
    """Return the events of a state that are kept if they come before the first state that takes them."""
    return [name for name in state.events if state.graph and name in state.graph.kept_names]


def note_left(owner: type[Model], using: str, before: Iterable[HasLife]) -> None:
    """Note which objects have left a state whose events are kept only before it; call it beside :func:`entered`."""
    graph, label = graph_of(owner), owner._meta.label_lower
    if not graph.kept_names:
        return
    marks = [
        Event(
            model_label=label, object_pk=str(row.pk), name=name, version=LEFT, voter="", source=state.name,
            life=row.life.first,
        )
        for row in before
        if (state := graph.states.get(str(row.state)))
        for name in kept_names(state)
    ]  # fmt: skip
    if marks:
        rows: QuerySet[Event] = QuerySet(Event, using=using)
        # Those of objects that return are there.
        rows.bulk_create(marks, ignore_conflicts=True, batch_size=BATCH)


def _give_kept(owner: type[Model], using: str, state: State, pks: Collection[object]) -> None:
    """Give objects that have entered a state all events that were kept for it, in their order."""
    kept = events_of(owner, using).filter(name__in=kept_names(state), version=None, until__gt=Now()).order_by("pk")
    for some in parts_of(owner, pks):
        mine, last = kept.filter(object_pk__in=[str(pk) for pk in some]), 0
        while page := list(mine.filter(pk__gt=last)[:BATCH]):
            for event in page:
                _give(owner, using, state, event)
            last = page[-1].pk


def _give(owner: type[Model], using: str, state: State, event: Event) -> None:
    """Give an object a kept event of its life; it is over if an earlier event has moved the object on."""

    def take(alias: str, rows: QuerySet[Model], before: list[Locked]) -> int:
        [row] = before
        mine = events_of(owner, alias).filter(pk=event.pk, version=None)
        if row.state == state.name and row.life.is_of(event.life):
            # The object may have left the state and returned, with the events that were kept for it.
            if mine.exists():
                apply_event(owner, alias, row, state.events[event.name], event)
        elif mine.delete()[0] and row.life.is_of(event.life):
            note_event(owner, alias, row.pk, event, f"over: {row.state} does not take it")
        return 1

    rows: QuerySet[Model] = QuerySet(owner, using=using)
    in_batches(rows.filter(pk=key_of(owner, event.object_pk)), take)


def keep_moves(
    owner: type[Model], using: str, pks: Sequence[object], target: State, reason: str, kind: History.Kind,
    actor: str = "",
) -> None:  # fmt: skip
    """Write a history entry for the move of each of these locked rows; call it before they are moved."""
    moves = {"version": F("state_version") + 1, "stay": Seconds(columns.stayed())}
    attempts = {"attempts": F("state_attempts"), "claimed": F("state_attempted")}
    keep_entries(owner, using, pks, moves | attempts, {"to": target.name, **_told(actor, reason, kind)})


def keep_acts(
    owner: type[Model], using: str, pks: Sequence[object], actor: str, reason: str,
    kind: History.Kind = History.Kind.HAND,
) -> None:  # fmt: skip
    """Write a history entry for each of these locked rows, which somebody changes without a move."""
    keep_entries(owner, using, pks, {"version": F("state_version")}, _told(actor, reason, kind))


def _told(actor: str, reason: str, kind: History.Kind) -> dict[str, object]:
    return {"actor": actor[:150], "reason": reason[:REASON_LENGTH], "kind": kind.value}


def tell_moves(owner: type[Model], using: str, before: list[Locked], target: State) -> None:
    """Send the moves, and that rows are ready, once the transaction has committed."""
    if not before:
        return
    moves = [signals.Move(row.pk, row.state, target.name) for row in before]
    told = {"moves": moves, "failures": [], "using": using}
    if signals.transitioned.has_listeners(owner):
        transaction.on_commit(lambda: signals.transitioned.send(owner, **told), using=using)
    if columns.ready_at_once(target):
        signals.announce(owner, using)
