"""Chores on many rows of a model without a handler: marking ready, timeouts, renames and deletions.

Each takes the operations of one model and a limit, and works in one short transaction. It is safe to run twice, on
any worker, and concurrently.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial

from django.db.models import Model, Q, QuerySet, signals
from django.db.models.deletion import get_candidate_relations_to_delete

from stator.db.conditions import DELETE, MARK_READY
from stator.db.interface import Moves, Operations
from stator.db.repeat import retrying, unless_refused
from stator.db.transactions import lock_parts
from stator.exceptions import PROJECT_ERRORS
from stator.graph import State
from stator.rows import columns
from stator.rows.claimable import READY, RESTING
from stator.rows.clock import Now
from stator.rows.edges import condition_of, reason_of
from stator.rows.indexes import place_in_line

# Rows that one transaction deletes if receivers are called for each, which may take a while.
HEARD_AT_ONCE = 10


def mark_ready(operations: Operations, limit: int) -> int:
    """Mark rows ready whose time has come; return how many. Indexes ``st_rest`` and ``st_try``."""
    return change(operations, MARK_READY, operations.due(), limit, columns.marking_ready(operations.state_field))


def settle(operations: Operations, limit: int) -> int:
    """Clear the ready mark of rows that nothing attempts or that are not due; return how many.

    Such rows have the mark if the mixin was added to a table with rows, or if a state became external or terminal.
    Index ``st_ready``; rows that are not due are at its end.
    """
    return change(operations, "settle", unsettled(operations), limit, {"state_ready": False})


def unsettled(operations: Operations) -> list[QuerySet[Model]]:
    """Return querysets of the rows that have the ready mark and should not."""
    settled = [state for state in operations.graph.states.values() if not state.automatic]
    ready = _ready(operations)
    early = ready.filter(state_next_attempt__gt=Now()).alias(stator_turn=place_in_line()).filter(stator_turn__gt=Now())
    field = operations.state_field
    unmanaged = [field.unmanaged(operations.rows.filter(READY))] if field.null else []
    return [ready.filter(**field.among(settled)), early, *unmanaged]


def change(
    operations: Operations, deed: str, parts: list[QuerySet[Model]], limit: int, changes: columns.Changes
) -> int:
    """Change up to ``limit`` rows of these querysets without a move; return how many."""
    return sum(unless_refused(operations, deed, parts, limit, partial(_change_some, operations, changes)))


@retrying
def _change_some(operations: Operations, changes: columns.Changes, parts: list[QuerySet[Model]], limit: int) -> int:
    with operations.transaction():
        picked = lock_parts(operations, parts, limit)
        return operations.rows.filter(pk__in=picked).update(**changes) if picked else 0


def time_out(operations: Operations, limit: int, move: Callable[..., Moves] | None = None) -> Moves:
    """Move rows past their timeout. ``move`` replaces the operations' own ``move_rows``.

    By age, resting ones: index ``st_rest``. By a date, ready ones too: index ``st_at``.
    """
    parts = []
    for state in operations.graph.states.values():
        if state.timeout_state and state.timeout_value:
            past = _stayed(_resting(operations, operations.rows, state), state.timeout_value)
            parts += _move(operations, move, past, limit, (state.name, state.timeout_state, "timed out"))
    if operations.deadlines:
        operations.conditions.read_initially(operations)
    for deadline in operations.deadlines:
        edge = deadline.state.name, deadline.to, deadline.reason
        parts += _move(operations, move, operations.past(deadline), limit, edge)
    return _total(parts)


def open_deadlines(operations: Operations) -> tuple[Q, ...]:
    """Return for each deadline a filter for the rows that may be moved by it now."""
    rows = operations.conditions.rows
    return tuple(rows(_deed(each.state.name, each.to, each.reason)) for each in operations.deadlines)


def rename(operations: Operations, limit: int, move: Callable[..., Moves] | None = None) -> Moves:
    """Give rows that have the former name of a state its new name, as ``RenameState`` does. ``move``: see above."""
    parts, renaming = list[Moves](), partial(columns.renaming, operations.state_field)
    for former, state in operations.graph.renames.items():
        for rows in _renamed(operations, former):
            parts += _move(operations, move, rows, limit, (former, state, "renamed"), renaming(state))
    return _total(parts)


def move_matching(operations: Operations, limit: int, move: Callable[..., Moves] | None = None) -> Moves:
    """Do the SQL transitions: move unclaimed rows that match the condition of an edge of their state.

    ``move``: as above.
    """
    parts = []
    for state in operations.graph.states.values():
        for condition, to in state.conditions:
            for rows in _matching(operations, state, condition):
                parts += _move(operations, move, rows, limit, (state.name, to, reason_of(condition)))
    return _total(parts)


def matching(operations: Operations) -> list[QuerySet[Model]]:
    """Return querysets of the rows that match the condition of an edge of their state."""
    states = operations.graph.states.values()
    edges = [(state, condition) for state in states for condition, _ in state.conditions]
    return [rows for edge in edges for rows in _matching(operations, *edge)]


def _move(
    operations: Operations,
    move: Callable[..., Moves] | None,
    rows: QuerySet[Model],
    limit: int,
    edge: tuple[str, State, str],
    changes: columns.Changes | None = None,
) -> list[Moves]:
    """Move rows along ``edge``: the state they leave, the state they enter, and the reason."""
    source, to, reason = edge
    move = move or operations.move_rows

    def write(parts: list[QuerySet[Model]], most: int) -> Moves:
        return move(parts[0], source, to, most, reason=reason, changes=changes)

    return unless_refused(operations, _deed(source, to, reason), [rows], limit, write)


def _deed(source: str, to: State, reason: str) -> str:
    return f"{source} to {to.name}: {reason}"


def delete_due(operations: Operations, limit: int, by_state: Counter[str] | None = None) -> int:
    """Delete unclaimed rows that stayed in their state for ``delete_after``; return how many.

    Deletes up to ``limit`` rows of each state, in one transaction. A row is skipped if it cannot be deleted because
    other rows refer to it, or if a receiver raises for it. ``by_state``: the numbers are added to it.
    """
    deleted: Counter[str] = Counter()
    for state in operations.graph.states.values():
        if state.delete_after:
            old = _stayed(_resting(operations, deletable(operations), state), state.delete_after)
            delete = partial(_delete_some, operations)
            deleted[state.name] = sum(unless_refused(operations, DELETE, [old], limit, delete, errors=PROJECT_ERRORS))
            if by_state is not None:
                by_state[state.name] += deleted[state.name]
    return deleted.total()


def rows_to_watch(operations: Operations, within: float) -> list[QuerySet[Model]]:
    """Return querysets of rows that a worker is to attempt, to watch or to do a chore for in the next seconds.

    If none of them has a row, the model can be left alone for ``within`` seconds, unless somebody writes to its rows or
    one of them comes due. Indexes as of the chores.
    """
    states = operations.graph.states.values()
    return [
        _ready(operations),
        operations.rows.filter(state_claim__isnull=False),
        *operations.due(),
        *operations.conditions.to_watch(),
        *(rows for former in operations.graph.renames for rows in _renamed(operations, former)),
        *matching(operations),
        *(_stayed(_resting(operations, operations.rows, state), state.timeout_value - within)
          for state in states if state.timeout_state and state.timeout_value),
        *(operations.past(deadline, within) for deadline in operations.deadlines),
        *(_stayed(_resting(operations, deletable(operations), state), state.delete_after - within)
          for state in states if state.delete_after),
    ]  # fmt: skip


def deleted_at_once(model: type[Model], limit: int) -> int:
    """Return how many rows to delete in one transaction: few if receivers of signals are called for each."""
    return min(limit, HEARD_AT_ONCE) if _is_heard(model, set()) else limit


def _is_heard(model: type[Model], asked: set[type[Model]]) -> bool:
    """Return whether receivers listen for deletions of a model or of rows deleted with it."""
    asked.add(model)
    if signals.pre_delete.has_listeners(model) or signals.post_delete.has_listeners(model):
        return True
    related = {relation.related_model for relation in get_candidate_relations_to_delete(model._meta)}
    return any(_is_heard(each, asked) for each in related - asked if each)


def _resting(operations: Operations, rows: QuerySet[Model], state: State) -> QuerySet[Model]:
    return rows.filter(RESTING, **operations.state_field.at(state))


def _stayed(rows: QuerySet[Model], seconds: float) -> QuerySet[Model]:
    """Return the rows that have been in their state for this many seconds; a negative number lies in the future."""
    return rows.filter(state_changed__lte=columns.after(-seconds))


def _ready(operations: Operations) -> QuerySet[Model]:
    return operations.rows.filter(READY, **operations.state_field.among(operations.known))


def _renamed(operations: Operations, former: str) -> list[QuerySet[Model]]:
    # One statement for ready rows and one for resting rows, because they are in different indexes.
    return [operations.rows.filter(where, **operations.state_field.at(former, gone=True)) for where in (READY, RESTING)]


def _matching(operations: Operations, state: State, condition: object) -> list[QuerySet[Model]]:
    # The graph, which knows nothing of Django, has any object as a condition.
    wheres = (RESTING, READY) if state.automatic else (RESTING,)
    rows, there = operations.rows, operations.state_field.at(state)
    met = [condition_of(rows.filter(where, **there), state, condition) for where in wheres]
    return [rows.filter(each, where, **there) for each, where in zip(met, wheres, strict=True)]


def deletable(operations: Operations) -> QuerySet[Model]:
    """Return the rows that ``delete_after`` may delete: all, or the rows of the model's ``delete_manager``."""
    if not operations.options.delete_manager:
        return operations.rows
    rows: QuerySet[Model] = getattr(operations.model, operations.options.delete_manager).using(operations.alias)
    return rows


def _total(parts: list[Moves]) -> Moves:
    return Moves(sum(part.count for part in parts), [move for part in parts for move in part.listed])


@retrying
def _delete_some(operations: Operations, parts: list[QuerySet[Model]], limit: int) -> int:
    # It is a handler's transaction, because the project's receivers are called in it and may take long.
    with operations.handler_transaction():
        pks = lock_parts(operations, parts, limit)
        if not pks:
            return 0
        operations.hurry()
        deletable(operations).filter(pk__in=pks).delete()
    return len(pks)
