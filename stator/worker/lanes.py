"""Lanes: states of a model that are claimed together, and what wakes the claims for them."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable

from stator.db.interface import Operations
from stator.graph import State
from stator.scopes import Scope

# Rows that one claim for a lane asks for. After ``STREAK`` full claims in a row, each next claim asks for twice as
# many. So after a burst in one lane, the other lanes get their turn after a short statement, while a backlog is claimed
# in whole batches.
FEW, STREAK = 100, 5


class Lane:
    """The states of one model whose handlers run in the same way: on the loop or in threads, ``batch`` rows at a time.

    ``hungry``: it may have ready rows that lost no lease.
    ``crashed``: it may have ready rows that lost few leases in a row.
    ``suspect``: a poll has found a row that lost many.
    ``more_suspects``: the last claim has found one.
    """

    def __init__(self, operations: Operations, states: list[State], is_async: bool, batch: int) -> None:
        self.operations = operations
        self.states = states
        self.is_async = is_async
        self.batch = batch
        # The names of the states.
        self.names = {state.name for state in states}
        self.hungry = True
        self.crashed = self.suspect = self.more_suspects = False
        self.step = f"claim in {', '.join(sorted(self.names))}"
        self._streak = 0

    @property
    def is_served(self) -> bool:
        """Whether rows of the model are claimed: its table lacks nothing."""
        return not self.operations.suspended.held

    @property
    def wanted(self) -> bool:
        """Whether it may have ready rows of any kind and is served."""
        return (self.hungry or self.crashed or self.suspect) and self.is_served

    @property
    def is_open(self) -> bool:
        """Whether it may be claimed from: it is served, and no claim has just timed out waiting for a lock."""
        operations = self.operations
        locks = operations.locks
        return not operations.suspended.held and (not locks.held or locks.allow(self.step))

    def most(self, room: int) -> int:
        """Return how many rows to ask for when there is room for ``room`` rows."""
        # 20 doublings exceed any room.
        doublings = min(max(0, self._streak - STREAK + 1), 20)
        return min(room, max(FEW, self.batch) * 2**doublings)

    def came(self, count: int, asked: int) -> None:
        """Note how many rows a claim brought; the lane stays hungry if it may have more."""
        self._streak = self._streak + 1 if count == asked else 0
        self.hungry = self.hungry or self._streak > 0


def lanes_of(operations: Operations) -> Iterable[Lane]:
    """Yield the lanes of a model; a state with a limit of its own gets a lane of its own."""
    manners: dict[tuple[bool, int, str], list[State]] = defaultdict(list)
    for state in sorted(operations.graph.automatic_states, key=str):
        manners[state.is_async, state.batch or 1, state.name if state.concurrency else ""].append(state)
    for (is_async, batch, _), states in manners.items():
        yield Lane(operations, states, is_async, batch)


class Lanes(list[Lane]):
    """The lanes of one process. ``woken`` is set when there may be rows to claim, or room for more of them."""

    def __init__(self, lanes: Iterable[Lane]) -> None:
        super().__init__(lanes)
        self.woken = asyncio.Event()

    @property
    def are_wanted(self) -> bool:
        """Whether any of them may have ready rows."""
        return any(lane.wanted for lane in self)

    def wake(self, label: str | None = None, names: set[str] | None = None, scope: Scope | None = None) -> None:
        """Note that there may be ready rows: of one model, of some of its states, in one scope, or of all models."""
        for lane in self:
            is_there = scope is None or lane.operations.scope == scope
            if is_there and (label is None or lane.operations.label == label) and (names is None or names & lane.names):
                lane.hungry = True
        self.woken.set()

    def wake_after(self, operations: Operations, names: set[str]) -> None:
        """Wake the lanes of rows that may be ready in these states, and of rows that await objects in these states."""
        self.wake(operations.label, names, operations.scope.of_all)
        for follower in operations.followers:
            for model in follower.waking(names):
                self.wake(model._meta.label_lower, scope=operations.scope.of_all)
