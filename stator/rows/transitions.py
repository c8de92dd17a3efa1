"""Moves by hand and by methods of models: every move that is not an outcome of an attempt or a duty of workers."""

from collections.abc import Callable, Iterator
from typing import Any

from django.db import router, transaction
from django.db.models import QuerySet

from stator import signals
from stator.exceptions import ProtectedState
from stator.graph import State
from stator.graph.durations import seconds_of
from stator.rows import columns
from stator.rows.meta import named_state, owner_of
from stator.rows.reports import REASON_LENGTH, History
from stator.rows.waits import wake

# Rows per transaction: few enough to hold no lock for long, enough to move a million rows in seconds.
BATCH = 1000


def state_by_hand(model: Any, state: State | str) -> State:
    """Return the state of that name; raise ``ProtectedState`` if only the framework enters it."""
    found = named_state(model, state)
    if not found.enter_by_hand:
        free = [other.name for other in model.state_graph.states.values() if other.enter_by_hand]
        raise ProtectedState(
            f"{model.state_graph.__name__}.{found.name} can be entered only by the framework, not by hand; "
            f"you can move objects to {', '.join(free)}"
        )
    return found


def move_by_hand(
    queryset: QuerySet[Any],
    state: State | str,
    *,
    actor: str = "",
    reason: str = "",
    also: dict[str, Any] | None = None,
) -> int:
    """Call :func:`move_rows`; raise ``ProtectedState`` if only the framework enters ``state``."""
    return move_rows(queryset, state_by_hand(queryset.model, state), actor=actor, reason=reason, also=also)


def move_rows(
    queryset: QuerySet[Any],
    state: State | str,
    *,
    actor: str = "",
    reason: str = "",
    also: dict[str, Any] | None = None,
) -> int:
    """Move every row of ``queryset`` to any ``state``, ending any claim; return how many.

    For methods of a model that decide themselves which of its objects may go there. Rows are locked in the order of
    their primary keys, in batches; each batch is a transaction of its own unless the caller has one open. ``also``:
    further columns to write with the move.
    """
    target = named_state(queryset.model, state)
    owner = owner_of(queryset.model)

    def move(using: str, rows: QuerySet[Any], before: list[Any]) -> int:
        own = also if also and queryset.model._meta.concrete_model is owner else {}
        if also and not own:
            # Through the queryset's model: under multi-table inheritance a column may be in the child's table.
            QuerySet(queryset.model, using=using).filter(pk__in=[pk for pk, *_ in before]).update(**also)
        # One statement, so that a trigger that sees the change leaves the row to this move.
        moved = rows.update(**columns.entering(target), **own)
        _keep_history(owner, using, before, target, actor, reason)
        wake(owner, using, target.name, [pk for pk, *_ in before])
        _tell(owner, using, before, target)
        return moved

    return in_batches(queryset, move)


def write_by_hand(queryset: QuerySet[Any], changes: columns.Changes, *, actor: str = "", reason: str = "") -> int:
    """Write framework columns of every row of ``queryset`` without a move, and wake workers; return how many.

    A history entry is written only if ``actor`` is given.
    """
    owner = owner_of(queryset.model)

    def write(using: str, rows: QuerySet[Any], before: list[Any]) -> int:
        signals.announce(owner, using)
        if actor:
            _keep_act(owner, using, before, actor, reason)
        return rows.update(**changes)

    return in_batches(queryset, write)


def in_batches(queryset: QuerySet[Any], write: Callable[[str, QuerySet[Any], list[Any]], int]) -> int:
    """Lock the rows in batches, in key order; return the sum of the results of ``write(alias, rows, before)``.

    ``before`` has ``(pk, state, version, stayed, attempts, attempted)`` of each locked row. Each batch is one
    transaction.
    """
    owner = owner_of(queryset.model)
    using = written_to(queryset)
    rows: QuerySet[Any] = QuerySet(owner, using=using)
    written = 0
    queryset = queryset.using(using)
    # We lock the rows ourselves, in key order; ``FOR UPDATE`` cannot be combined with ``DISTINCT``.
    queryset.query.select_for_update = False
    for meant, pks in _pages(queryset, rows, owner._meta.pk.name):
        with transaction.atomic(using=using):
            before = _lock(meant, owner, using, pks)
            written += write(using, rows.filter(pk__in=[pk for pk, *_ in before]), before) if before else 0
    return written


def written_to(queryset: QuerySet[Any]) -> str:
    """Return the alias of the database to which the rows of a queryset are written."""
    return getattr(queryset, "_db", None) or router.db_for_write(owner_of(queryset.model))


def _pages(queryset: QuerySet[Any], rows: QuerySet[Any], pk: str) -> Iterator[tuple[QuerySet[Any], list[Any]]]:
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


def _next_pks(queryset: QuerySet[Any], pk: str, last: Any) -> list[Any]:
    rest = queryset if last is None else queryset.filter(**{f"{pk}__gt": last})
    ordered = rest.order_by(pk)
    # A reversed queryset stays reversed even if it is ordered anew.
    ordered.query.standard_ordering = True
    return list(ordered.values_list(pk, flat=True).distinct()[:BATCH])


def _lock(queryset: QuerySet[Any], owner: Any, using: str, pks: list[Any]) -> list[Any]:
    """Lock the rows and return those that still match the queryset: they may have changed before the lock."""
    rows: QuerySet[Any] = QuerySet(owner, using=using)
    locked = rows.filter(pk__in=pks).order_by("pk").select_for_update(**_lock_options(owner, using))
    named = ("pk", "state", "state_version", columns.stayed(), "state_attempts", "state_attempted")
    found = list(locked.values_list(*named))
    meant = set(queryset.filter(pk__in=pks).values_list(owner._meta.pk.name, flat=True))
    return [row for row in found if row[0] in meant]


def _lock_options(owner: Any, using: str) -> dict[str, Any]:
    from_parents = {"of": ("self",)} if owner._meta.parents and _features(using).has_select_for_update_of else {}
    return {"no_key": _features(using).has_select_for_no_key_update, **from_parents}


def _features(using: str) -> Any:
    return transaction.get_connection(using).features


def _keep_history(owner: Any, using: str, before: list[Any], target: State, actor: str, reason: str) -> None:
    label = owner._meta.label_lower
    History.objects.using(using).bulk_create(
        History(
            model_label=label, object_pk=str(pk), version=version + 1, source=source, to=target.name,
            actor=actor[:150], reason=reason[:REASON_LENGTH], stay=seconds_of(stayed), attempts=attempts,
            claimed=attempted,
        )
        for pk, source, version, stayed, attempts, attempted in before
    )  # fmt: skip


def _keep_act(owner: Any, using: str, before: list[Any], actor: str, reason: str) -> None:
    label = owner._meta.label_lower
    History.objects.using(using).bulk_create(
        History(
            model_label=label, object_pk=str(pk), version=version, source=source,
            actor=actor[:150], reason=reason[:REASON_LENGTH],
        )
        for pk, source, version, *_ in before
    )  # fmt: skip


def _tell(owner: Any, using: str, before: list[Any], target: State) -> None:
    if not before:
        return
    moves = [signals.Move(pk, source, target.name) for pk, source, *_ in before]
    told = {"moves": moves, "failures": [], "using": using}
    transaction.on_commit(lambda: signals.transitioned.send(owner, **told), using=using)
    if columns.ready_at_once(target):
        signals.announce(owner, using)
