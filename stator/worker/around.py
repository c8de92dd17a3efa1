"""What extensions do around the calls of handlers, and after moves without one: put together once, not at each call."""

import time
from collections.abc import Callable, Iterable
from functools import partial, reduce

from django.db.models import Model, QuerySet

from stator.batteries import extensions
from stator.conf import Settings
from stator.db.interface import Claim, Ended, Moves, Operations
from stator.graph import State
from stator.graph.outcomes import Outcome, Released
from stator.rows.columns import Changes
from stator.seams import Around, AroundMoves
from stator.worker.executor import PLAIN, Attempted, Calls, CallsByState


def calls_by_state(models: Iterable[Operations]) -> CallsByState:
    """Return the calls of the handlers around which an extension does something."""
    by_state = {
        (operations.label, state.name): calls_of(operations, state)
        for operations in models
        for state in operations.graph.automatic_states
    }
    return {key: calls for key, calls in by_state.items() if calls is not PLAIN}


def calls_of(operations: Operations, state: State, further: Iterable[Around] = ()) -> Calls:
    """Return the calls of one state's handler with what is around them; the first extension is the outermost."""
    made = (extension.around(operations.settings, operations.label, state) for extension in extensions())
    return reduce(_wrapped, [*filter(None, made), *further][::-1], PLAIN)


def _wrapped(calls: Calls, around: Around) -> Calls:
    wrapping = _Wrapping(calls, around)
    return Calls(wrapping.sync, wrapping.on_loop, wrapping.atomic, wrapping.given_up)


class _Wrapping:
    """Calls with one extension around them."""

    __slots__ = ("_around", "_calls")

    def __init__(self, calls: Calls, around: Around) -> None:
        self._calls, self._around = calls, around

    def sync(self, claims: list[Claim]) -> list[Ended]:
        begun = self._around.begin(claims)
        try:
            ended = self._calls.sync(claims)
        except BaseException as error:
            self._around.end(claims, begun, (), error)
            raise
        self._around.end(claims, begun, ended)
        return ended

    async def on_loop(self, claims: list[Claim]) -> list[Ended]:
        begun = self._around.begin(claims)
        try:
            ended = await self._calls.on_loop(claims)
        except BaseException as error:
            self._around.end(claims, begun, (), error)
            raise
        self._around.end(claims, begun, ended)
        return ended

    def atomic(self, claims: list[Claim]) -> Attempted:
        begun = self._around.begin(claims)
        try:
            attempted = self._calls.atomic(claims)
        except BaseException as error:
            self._around.end(claims, begun, (), error)
            raise
        self._around.end(claims, begun, attempted.recorded or [pair for pair in attempted.ended if _is_fault(pair[1])])
        return attempted

    def given_up(self, claim: Claim, outcome: Outcome) -> None:
        self._calls.given_up(claim, outcome)
        self._around.given_up(claim, outcome)


def _is_fault(outcome: Outcome) -> bool:
    return outcome.failure is not None or isinstance(outcome, Released)


def mover_of(operations: Operations) -> Callable[..., Moves]:
    """Return ``move_rows`` of the operations, after which each extension does what it does after moves."""
    made = [around for extension in extensions() if (around := extension.moves(operations.settings))]
    return partial(_move, operations, made) if made else operations.move_rows


def _move(
    operations: Operations,
    arounds: list[AroundMoves],
    rows: QuerySet[Model],
    source: str,
    to: State,
    limit: int,
    *,
    reason: str = "",
    changes: Changes | None = None,
) -> Moves:
    started = time.time_ns()
    moves = operations.move_rows(rows, source, to, limit, reason=reason, changes=changes)
    if moves.count:
        for around in arounds:
            around.moved(operations, source, to, moves, reason=reason, started=started)
    return moves


def end_extensions(settings: Settings) -> None:
    """Let each extension do what it does when a process of a worker ends."""
    for extension in extensions():
        extension.end(settings)
