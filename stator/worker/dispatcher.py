"""Claims: which states are claimed together (lanes), which of them is next, and the claim itself."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from stator.db.interface import Claim, Operations, new_token
from stator.db.retry import is_lock_timeout
from stator.db.suspensions import Suspensions
from stator.graph import State
from stator.rows.claimable import Crashes
from stator.scopes import Scope
from stator.texts import one_line
from stator.worker.alone import Alone
from stator.worker.attempts import Attempts
from stator.worker.outage import Outages
from stator.worker.parts import Monitor
from stator.worker.recorder import Recorder
from stator.worker.threads import DatabaseThreads

# Rows that one claim for a lane asks for. After ``STREAK`` full claims in a row, each next claim asks for twice as
# many. So after a burst in one lane, the other lanes get their turn after a short statement, while a backlog is claimed
# in whole batches.
FEW, STREAK = 100, 5

# The step that releases rows that may have been claimed by a statement without an answer.
HAND_BACK = "hand back"


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
    """Yield the lanes of a model; a state that a condition gates gets a lane of its own."""
    manners: dict[tuple[bool, int, str], list[State]] = defaultdict(list)
    for state in sorted(operations.graph.automatic_states, key=str):
        own = state.name if operations.conditions.gates([state]) else ""
        manners[state.is_async, state.batch or 1, own].append(state)
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
        for follower in operations.wakers:
            for model in follower.waking(names):
                self.wake(model._meta.label_lower, scope=operations.scope.of_all)


class Doubt(NamedTuple):
    """A claim statement whose answer never came: rows with its token are released later."""

    operations: Operations
    token: UUID


class Dispatcher:
    """Claims rows for the lanes in turn, never more than there is room to start, and none while ``recorder`` is behind.

    After its claim a lane goes to the end of the line, so a hungry lane waits for at most one claim of each other
    hungry lane.

    A lane is hungry while it may have ready rows: until a claim brings fewer rows than it asked for, and again after a
    poll, a notification or a recorded move.

    Rows that lost a lease are claimed first, but at most ``most_crashed`` of them are held at a time. One of them may
    end the process, and rows that lost no lease need places too. Rows that lost more leases are attempted ``alone``.

    ``suspended`` has the claims in doubt.
    """

    def __init__(
        self,
        lanes: Lanes,
        attempts: Attempts,
        threads: DatabaseThreads,
        alone: Alone,
        recorder: Recorder,
        most_crashed: int,
        suspended: Suspensions,
        monitors: Sequence[Monitor] = (),
    ) -> None:
        self.lanes = lanes
        self.stopped = False
        self.claimed = 0
        self._attempts = attempts
        self._threads = threads
        self._alone = alone
        self._recorder = recorder
        self._most_crashed = most_crashed
        self._crashed: list[Claim] = []
        self._outages = Outages()
        self._monitors = monitors
        self._suspended = suspended
        self._aliases = sorted({lane.operations.alias for lane in lanes})
        self._line = list(lanes)
        # Lanes take separate turns for rows that lost leases.
        self._line_of_crashed = list(lanes)
        self._claiming = False

    def add(self, lanes: list[Lane]) -> None:
        """Claim for more lanes."""
        for line in (self.lanes, self._line, self._line_of_crashed):
            line.extend(lanes)
        self._aliases = sorted({lane.operations.alias for lane in self.lanes})
        self.lanes.woken.set()

    def remove(self, scope: Scope) -> None:
        """Claim no more in a scope."""
        for line in (self.lanes, self._line, self._line_of_crashed):
            line[:] = [lane for lane in line if lane.operations.scope != scope]

    @property
    def hungry(self) -> bool:
        """Whether a lane may have ready rows, or a claim in progress has taken rows that have not arrived yet."""
        return self._claiming or self.lanes.are_wanted

    @property
    def doubts(self) -> list[Doubt]:
        """The claims in doubt."""
        return [key for key in self._suspended.held if isinstance(key, Doubt)]

    def stop(self) -> None:
        """Stop claiming; rows whose claim is in doubt are still released."""
        self.stopped = True
        self.lanes.woken.set()

    async def claim(self) -> int:
        """Do one turn: claim for each hungry lane as much as there is room for; return how many rows came.

        If a database is unreachable, its error is raised after the lanes of other databases had their turn.
        """
        self.lanes.woken.clear()
        outages = self._outages
        if self._suspended.held:
            await self.settle_doubts(outages)
        came = 0
        if not self.stopped:
            for alias in [alias for alias in self._aliases if not self._threads.may_claim(alias)]:
                with outages.noted(alias):
                    await self._threads.records.connect(alias)
            came = await self._claim_alone(outages)
            is_wanted = any(lane.suspect and lane.is_served for lane in self.lanes)
            if not ((is_wanted or self._alone.engaged) and self._alone.needs_room(is_wanted)):
                came += await self._claim_in_turn(outages)
        if outages.held:
            outages.raise_first()
        return came

    async def _claim_in_turn(self, outages: Outages) -> int:
        came = 0
        for lane in [lane for lane in self._line_of_crashed if lane.crashed]:
            came += await self._claim_by(self._claim_crashed_for, lane, outages)
        for lane in [lane for lane in self._line if lane.hungry]:
            came += await self._claim_by(self._claim_for, lane, outages)
        return came

    async def _claim_by(self, claim: Callable[[Lane], Awaitable[int]], lane: Lane, outages: Outages) -> int:
        came = 0
        if self._may_claim(lane, outages) and not self._recorder.is_behind(lane.operations):
            try:
                came = await claim(lane)
            except Exception as error:  # noqa: BLE001 - raised at the end of the turn, or here if it does not pass
                outages.note(lane.operations.alias, error)
        return came

    def _may_claim(self, lane: Lane, outages: Outages) -> bool:
        alias = lane.operations.alias
        return lane.is_open and alias not in outages.held and self._threads.may_claim(alias)

    async def _claim_for(self, lane: Lane) -> int:
        room = self._room_of(lane)
        if not room:
            return await self._claim_without_threads(lane) if lane.is_async else 0
        lane.hungry = False
        _send_to_end(self._line, lane)
        asked = lane.most(room)
        try:
            claims = await self._take(lane, asked)
        except BaseException:
            lane.hungry = True
            raise
        enough = lane.operations.division.enough(asked)
        lane.came(min(len(claims), enough), enough)
        self._attempts.begin(claims)
        return len(claims)

    async def _claim_without_threads(self, lane: Lane) -> int:
        """Claim rows that need no thread; the lane stays hungry, because its other rows wait for a thread."""
        with self._attempts.sparing_threads(lane.operations) as (room, claims):
            if room:
                claims += await self._take(lane, lane.most(room))
        self._attempts.begin(claims)
        return len(claims)

    async def _claim_crashed_for(self, lane: Lane) -> int:
        held = self._attempts.running, self._recorder.held
        self._crashed = [claim for claim in self._crashed if any(id(claim) in part for part in held)]
        room = min(self._room_of(lane), self._most_crashed - len(self._crashed))
        if room <= 0:
            return 0
        lane.crashed = False
        _send_to_end(self._line_of_crashed, lane)
        asked = lane.most(room)
        try:
            claims = await self._take(lane, asked, Crashes.FEW)
        except BaseException:
            lane.crashed = True
            raise
        lane.crashed = lane.crashed or len(claims) == asked
        self._crashed += claims
        self._attempts.begin(claims)
        return len(claims)

    def _room_of(self, lane: Lane) -> int:
        return self._attempts.room(lane.operations.label, lane.is_async, lane.batch)

    async def _take(self, lane: Lane, limit: int, crashes: Crashes = Crashes.NONE) -> list[Claim]:
        operations, began = lane.operations, time.monotonic()
        token = new_token(operations.worker_id)
        self._claiming = True
        try:
            with operations.scope.enter():
                claims = await self._threads.claims.run(
                    operations.claim, lane.states, limit, token=token, crashes=crashes
                )
        except BaseException as error:
            operations.locks.note(lane.step, error)
            if operations.division.is_divided or not is_lock_timeout(error):
                # The answer may be lost after the commit, and other parts may have been claimed before.
                self._suspended.suspend(Doubt(operations, token), one_line(error))
            raise
        finally:
            self._claiming = False
        if operations.locks.held:
            operations.locks.end(lane.step)
        for monitor in self._monitors:
            monitor.took("claim", time.monotonic() - began)
        self.claimed += len(claims)
        return claims

    async def settle_doubts(self, outages: Outages) -> None:
        """Release the rows of claim statements whose answer never came."""
        for doubt in self.doubts:
            operations, token = doubt
            if operations.alias not in outages and not operations.lacking and operations.locks.allow(HAND_BACK):
                with outages.noted(operations.alias), operations.locks.tried(HAND_BACK), operations.scope.enter():
                    await self._threads.claims.run(operations.release_token, token)
                    self._suspended.end(doubt)

    async def _claim_alone(self, outages: Outages) -> int:
        """Claim rows that lost many leases, one for each place to run it alone."""
        came = 0
        # A poll finds such rows per model, not per lane. A lane without one must not block a lane that has some.
        suspects = [lane for lane in self._line_of_crashed if lane.suspect or lane.more_suspects]
        for lane in [lane for lane in suspects if lane.is_served]:
            if not self._alone.has_room(make=lane.suspect):
                continue
            _send_to_end(self._line_of_crashed, lane)
            # If its database is unreachable, other lanes need not wait for it: the next poll there sets the flag again.
            lane.suspect = lane.more_suspects = False
            if self._may_claim(lane, outages):
                with outages.noted(lane.operations.alias):
                    claims = await self._take(lane, 1, Crashes.MANY)
                    lane.more_suspects = bool(claims)
                    self._alone.begin(claims)
                    came += len(claims)
                    if claims:
                        # There may be more such rows; they make no lane hungry.
                        self.lanes.woken.set()
        return came


def _send_to_end(line: list[Lane], lane: Lane) -> None:
    # The turn may have lasted, and the lane's schema be gone since it began.
    if lane in line:
        line.remove(lane)
        line.append(lane)
