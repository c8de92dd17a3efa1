"""How much room there is, which model is next, and the claim itself."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from stator.db import Operations
from stator.db.claim import Claim, new_token
from stator.graph import State
from stator.worker.outage import Outages
from stator.worker.slots import Slots

# How long claims may pause for the process to become empty, so that a row that lost a lease can be run alone.
EMPTYING = 10.0

# A lane is asked for so many rows until it has had them that many times in a row, and then for twice as many each time:
# so a burst in one leaves the others their turn after a short statement, while a backlog is taken in whole batches.
FEW, STREAK = 100, 5


class Lane:
    """The states of one model whose handlers run in one manner: on the loop or in threads, ``batch`` rows at a time."""

    def __init__(self, operations: Operations, states: list[State], is_async: bool, batch: int) -> None:
        self.operations = operations
        self.states = states
        self.is_async = is_async
        self.batch = batch
        self.hungry = True
        self.suspect = False
        self._streak = 0

    def most(self, room: int) -> int:
        """How many rows to ask for where there is so much room."""
        # After 20 doublings it is more than any room.
        doublings = min(max(0, self._streak - STREAK + 1), 20)
        return min(room, max(FEW, self.batch) * 2**doublings)

    def came(self, count: int, asked: int) -> None:
        """Note what a claim brought: the lane stays hungry if it may have more."""
        self._streak = self._streak + 1 if count == asked else 0
        self.hungry = self.hungry or self._streak > 0

    @property
    def names(self) -> set[str]:
        """Names of the states."""
        return {state.name for state in self.states}


def lanes_of(operations: Operations) -> Iterable[Lane]:
    """The lanes of a model: what is limited apart is claimed apart."""
    manners: dict[tuple[bool, int, str], list[State]] = defaultdict(list)
    for state in sorted(operations.graph.automatic_states, key=str):
        manners[state.is_async, state.batch or 1, state.name if state.concurrency else ""].append(state)
    for (is_async, batch, _), states in manners.items():
        yield Lane(operations, states, is_async, batch)


class Dispatcher:
    """Claims rows for the lanes in turn, never more than there is room to start.

    Whoever was asked goes to the end of the line, so a hungry lane waits for no more claims than there are other
    hungry lanes.

    A lane is hungry while it may have ready rows: until a claim brings less than was asked for, and again when a
    poll, a notification or a recorded move says so.
    """

    def __init__(
        self,
        lanes: list[Lane],
        slots: Slots,
        run: Callable[..., Awaitable[Any]],
        empty: Callable[[], bool],
        behind: Callable[[str], bool] = lambda alias: False,
    ) -> None:
        self.lanes = lanes
        self.stopped = False
        self.woken = asyncio.Event()
        self.claimed = 0
        self.last_claim = time.monotonic()
        self.doubtful: list[tuple[Operations, Any]] = []
        self._slots = slots
        self._run = run
        self._empty = empty
        self._behind = behind
        self._line = list(lanes)
        self._claiming = False
        self._emptying_since: float | None = None
        self._alone: Claim | None = None
        self._crowded_until = 0.0

    def wake(self, label: str | None = None, names: set[str] | None = None) -> None:
        """Look for ready rows again: of one model, of some of its states, or of all."""
        for lane in self.lanes:
            if (label is None or lane.operations.label == label) and (names is None or names & lane.names):
                lane.hungry = True
        self.woken.set()

    @property
    def hungry(self) -> bool:
        """Whether any lane may have ready rows, or a claim is on its way: its rows are taken but not here yet."""
        return self._claiming or any(lane.hungry or lane.suspect for lane in self.lanes)

    def stop(self) -> None:
        """Claim no more; what is in doubt is still handed back."""
        self.stopped = True
        self.woken.set()

    async def claim(self) -> int:
        """One turn: claim for each hungry lane what there is room for; return how many rows came.

        Where a database is away, that is raised once lanes of others had their turn.
        """
        self.woken.clear()
        outages = Outages()
        await self.settle_doubts(outages)
        came = 0
        if not self.stopped and not self._waits_for_alone():
            claim = self._claim_alone if self._wants_alone() else self._claim_in_turn
            came = await claim(outages)
        outages.tell()
        return came

    async def _claim_in_turn(self, outages: Outages) -> int:
        came = 0
        for lane in list(self._line):
            alias = lane.operations.alias
            if lane.hungry and alias not in outages and not self._behind(alias):
                with outages.noted(alias):
                    came += await self._claim_for(lane)
        return came

    async def _claim_for(self, lane: Lane) -> int:
        room = self._slots.room(lane.operations.label, lane.is_async, lane.batch)
        if not room:
            return 0
        lane.hungry = False
        self._send_to_end(lane)
        asked = lane.most(room)
        try:
            claims = await self._take(lane, asked)
        except BaseException:
            lane.hungry = True
            raise
        lane.came(len(claims), asked)
        self._slots.begin(claims)
        return len(claims)

    async def _take(self, lane: Lane, limit: int, alone: bool = False) -> list[Claim]:
        token = new_token(lane.operations.worker_id)
        self._claiming = True
        try:
            claims = await self._run(lane.operations.claim, lane.states, limit, token=token, alone=alone)
        except BaseException:
            # The answer may have been lost after the commit: whatever carries this token is given back.
            self.doubtful.append((lane.operations, token))
            raise
        finally:
            self._claiming = False
        self.last_claim = time.monotonic()
        self.claimed += len(claims)
        return claims

    async def settle_doubts(self, outages: Outages) -> None:
        """Hand back rows of claim statements whose answer never came."""
        for doubt in list(self.doubtful):
            operations, token = doubt
            if operations.alias not in outages:
                with outages.noted(operations.alias):
                    await self._run(operations.release_token, token)
                    self.doubtful.remove(doubt)

    # A row that lost a lease may be what killed its worker: it runs in an otherwise empty process.

    def _waits_for_alone(self) -> bool:
        return self._alone is not None and not self._empty()

    def _wants_alone(self) -> bool:
        self._alone = None
        if not any(lane.suspect for lane in self.lanes) or time.monotonic() < self._crowded_until:
            return False
        self._emptying_since = self._emptying_since or time.monotonic()
        if time.monotonic() - self._emptying_since < EMPTYING:
            return True
        # Something runs for long: go on with the others and try again later.
        self._emptying_since = None
        self._crowded_until = time.monotonic() + EMPTYING
        return False

    async def _claim_alone(self, outages: Outages) -> int:
        if not self._empty():
            return 0
        self._emptying_since = None
        # A look tells of the model and not of the lane: one that has none must not stand before one that has.
        for lane in [lane for lane in self._line if lane.suspect]:
            self._send_to_end(lane)
            # Should its database be away, others need not stand still for it: the next look there will tell again.
            lane.suspect = False
            if lane.operations.alias in outages:
                continue
            with outages.noted(lane.operations.alias):
                claims = await self._take(lane, 1, alone=True)
                if claims:
                    lane.suspect = True
                    self._alone = claims[0]
                    self._slots.begin(claims)
                    return 1
        return 0

    def _send_to_end(self, lane: Lane) -> None:
        self._line.remove(lane)
        self._line.append(lane)
