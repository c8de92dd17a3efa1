"""Moves by hand, by events and by methods of models: all that are not an outcome of an attempt or a duty of workers."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple, TypedDict

from django.db import transaction
from django.db.backends.base.features import BaseDatabaseFeatures
from django.db.models import Model, QuerySet

from stator import signals
from stator.exceptions import ProtectedState
from stator.graph.durations import seconds_of
from stator.graph.states import AwaitedEvent, State
from stator.rows import columns
from stator.rows.clock import Now
from stator.rows.meta import graph_of, named_state, owner_of, written_to
from stator.rows.reports import REASON_LENGTH, Event, History, events_of
from stator.rows.waits import wake

# Rows per transaction: few enough to hold no lock for long, enough to move a million rows in seconds.
BATCH = 1000


class Locked(NamedTuple):
    """A locked row as it was before it is written."""

    pk: object
    state: str
    version: int
    stayed: timedelta
    attempts: int
    attempted: datetime | None


class _LockOptions(TypedDict, total=False):
    no_key: bool
    of: tuple[str, ...]


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
) -> int:
    """Call :func:`move_rows`; raise ``ProtectedState`` if only the framework makes such a move."""
    target = state_by_hand(queryset.model, state)
    return move_rows(queryset, target, actor=actor, reason=reason, also=also, by_hand=True)


def move_rows(
    queryset: QuerySet[Model],
    state: State | str,
    *,
    actor: str = "",
    reason: str = "",
    also: Mapping[str, object] | None = None,
    by_hand: bool = False,
) -> int:
    """Move every row of ``queryset`` to any ``state``, ending any claim; return how many.

    Use it in methods of a model that decide themselves which of its objects may go there. Rows are locked in the order
    of their primary keys, in batches; each batch is a transaction of its own unless the caller has one open. ``also``:
    further columns to write with the move. ``by_hand``: raise ``ProtectedState`` for a row in a state with
    ``leave_by_hand=False``; its batch is not moved.
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
        moved = rows.update(**columns.entering(target), **own)
        _keep_history(owner, using, before, target, actor, reason)
        entered(owner, using, target.name, [row.pk for row in before])
        _tell(owner, using, before, target)
        return moved

    return in_batches(queryset, move)


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


def write_by_hand(queryset: QuerySet[Model], changes: columns.Changes, *, actor: str = "", reason: str = "") -> int:
    """Write framework columns of every row of ``queryset`` without a move, and wake workers; return how many.

    A history entry is written only if ``actor`` is given.
    """
    owner = owner_of(queryset.model)

    def write(using: str, rows: QuerySet[Model], before: list[Locked]) -> int:
        signals.announce(owner, using)
        if actor:
            _keep_act(owner, using, before, actor, reason)
        return rows.update(**changes)

    return in_batches(queryset, write)


def apply_event(owner: type[Model], using: str, row: Locked, awaited: AwaitedEvent, event: Event) -> int:
    """Store an event that a locked object waits for, and do what it does; return how many more senders it needs."""
    missing = awaited.count - 1
    if missing:
        missing -= events_of(owner, using).filter(object_pk=str(row.pk), name=event.name, version=row.version).count()
    moves = awaited.target is not None and missing <= 0
    event.version, event.until = row.version + moves, None
    event.save(using=using)
    rows: QuerySet[Model] = QuerySet(owner, using=using).filter(pk=row.pk)
    if missing > 0:
        note_event(owner, using, row, event, f"{awaited.count - missing} of {awaited.count}")
    elif awaited.target is not None:
        move_rows(rows, awaited.target, actor=event.sender, reason=event.described)
    else:
        note_event(owner, using, row, event)
        # A claim that is under way ends, so that no attempt that did not see the event puts the object off.
        rows.update(**columns.unlocking())
        signals.announce(owner, using)
    return max(missing, 0)


def note_event(owner: type[Model], using: str, row: Locked, event: Event, outcome: str = "") -> None:
    """Write a history entry of an event that does not move its object."""
    reason = f"{event.described} ({outcome})" if outcome else event.described
    _keep_act(owner, using, [row], event.sender, reason)


def entered(owner: type[Model], using: str, name: str, pks: Collection[object]) -> None:
    """Wake rows that waited for these objects to enter a state, and give the objects the events kept for it.

    Call it in the transaction that moves them.
    """
    wake(owner, using, name, pks)
    state = graph_of(owner).states.get(name)
    if pks and state is not None and (names := kept_names(state)):
        kept = events_of(owner, using).filter(
            object_pk__in=[str(pk) for pk in pks], name__in=names, version=None, until__gt=Now()
        )
        for event in kept.order_by("pk")[:BATCH]:
            _give(owner, using, state, event)


def kept_names(state: State) -> list[str]:
    """Return the events of a state that are kept if they come before it."""
    return [event.name for event in state.events.values() if event.keep_for]


def _give(owner: type[Model], using: str, state: State, event: Event) -> None:
    """Give an object a kept event, unless an earlier one has moved it on."""

    def take(alias: str, rows: QuerySet[Model], before: list[Locked]) -> int:
        apply_event(owner, alias, before[0], state.events[event.name], event)
        return 1

    rows: QuerySet[Model] = QuerySet(owner, using=using)
    in_batches(rows.filter(pk=event.object_pk, state=state.name), take)


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
    for meant, pks in _pages(queryset, rows, owner._meta.pk.name):
        with transaction.atomic(using=using):
            before = _lock(meant, owner, using, pks)
            written += write(using, rows.filter(pk__in=[row.pk for row in before]), before) if before else 0
    return written


def _pages(queryset: QuerySet[Model], rows: QuerySet[Model], pk: str) -> Iterator[tuple[QuerySet[Model], list[object]]]:
    """Yield batches of primary keys in order, each with the queryset that its rows must still match once locked."""
    query = queryset.query
    if query.is_sliced or query.distinct or query.combinator:
        # Such a queryset cannot be filtered further, so its keys are read at once.
        pks = sorted(set(queryset.values_list(pk, flat=True)), key=str)
        yield from ((rows, pks[start : start + BATCH]) for start in range(0, len(pks), BATCH))
        return
    last = None
    while page := _next_pks(queryset, pk, last):
        yield queryset, page
        last = page[-1]


def _next_pks(queryset: QuerySet[Model], pk: str, last: object) -> list[object]:
    rest = queryset if last is None else queryset.filter(**{f"{pk}__gt": last})
    ordered = rest.order_by(pk)
    # A reversed queryset stays reversed even if it is ordered anew.
    ordered.query.standard_ordering = True
    return list(ordered.values_list(pk, flat=True).distinct()[:BATCH])


def _lock(queryset: QuerySet[Model], owner: type[Model], using: str, pks: Sequence[object]) -> list[Locked]:
    """Lock the rows and return the rows that still match the queryset: they may have changed before the lock."""
    rows: QuerySet[Model] = QuerySet(owner, using=using)
    locked = rows.filter(pk__in=pks).order_by("pk").select_for_update(**_lock_options(owner, using))
    named = ("pk", "state", "state_version", columns.stayed(), "state_attempts", "state_attempted")
    found = [Locked(*values) for values in locked.values_list(*named)]
    meant = set(queryset.filter(pk__in=pks).values_list(owner._meta.pk.name, flat=True))
    return [row for row in found if row.pk in meant]


def _lock_options(owner: type[Model], using: str) -> _LockOptions:
    features = _features(using)
    options: _LockOptions = {"no_key": features.has_select_for_no_key_update}
    if owner._meta.parents and features.has_select_for_update_of:
        options["of"] = ("self",)
    return options


def _features(using: str) -> BaseDatabaseFeatures:
    return transaction.get_connection(using).features


def _keep_history(owner: type[Model], using: str, before: list[Locked], target: State, actor: str, reason: str) -> None:
    label = owner._meta.label_lower
    History.objects.using(using).bulk_create(
        History(
            model_label=label, object_pk=str(row.pk), version=row.version + 1, source=row.state, to=target.name,
            actor=actor[:150], reason=reason[:REASON_LENGTH], stay=seconds_of(row.stayed), attempts=row.attempts,
            claimed=row.attempted,
        )
        for row in before
    )  # fmt: skip


def _keep_act(owner: type[Model], using: str, before: list[Locked], actor: str, reason: str) -> None:
    label = owner._meta.label_lower
    History.objects.using(using).bulk_create(
        History(
            model_label=label, object_pk=str(row.pk), version=row.version, source=row.state,
            actor=actor[:150], reason=reason[:REASON_LENGTH],
        )
        for row in before
    )  # fmt: skip


def _tell(owner: type[Model], using: str, before: list[Locked], target: State) -> None:
    if not before:
        return
    moves = [signals.Move(row.pk, row.state, target.name) for row in before]
    told = {"moves": moves, "failures": [], "using": using}
    if signals.transitioned.has_listeners(owner):
        transaction.on_commit(lambda: signals.transitioned.send(owner, **told), using=using)
    if columns.ready_at_once(target):
        signals.announce(owner, using)
