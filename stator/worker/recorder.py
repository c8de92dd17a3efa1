"""Recording of outcomes in batches: the outcomes that arrive while one batch is written make up the next."""

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from stator.db.interface import Claim, Ended, Operations, OutcomeBatch, Written, batches_of
from stator.db.retry import is_of_schema, is_passing, suspends
from stator.db.suspensions import Suspensions
from stator.db.tables import lack_of
from stator.graph import State
from stator.graph.failures import describe
from stator.graph.outcomes import Outcome, Waiting
from stator.signals import transitioned
from stator.texts import one_line
from stator.worker.announcements import tell
from stator.worker.executor import FALLBACK, UNFIT, Attempted, outcomes_of
from stator.worker.outage import Outages
from stator.worker.parts import Monitor
from stator.worker.threads import RunInThread

logger = logging.getLogger("stator.worker")

# The step that writes outcomes.
RECORD = "record"

# Seconds that an outcome waits if an application's transaction has locked its row.
DEFERRED_FOR = 0.2

MAX_GATHER = 0.02

# If attempts are quicker than the database: how many batches of outcomes may wait before claims pause.
MAX_BATCHES = 4


@dataclass(eq=False, slots=True)
class _Unwritten:
    """A batch that is not written yet.

    ``again``: it may have been written already. ``refused``: it replaces an outcome that the database refused.
    """

    batch: OutcomeBatch
    again: bool = False
    refused: bool = False

    def __len__(self) -> int:
        return len(self.batch.ended)


def _for_nobody(*args: object) -> None:
    return None


class Recorder:
    """Where attempts end: each outcome is on its way to the database, and ``monitors`` are told of it as it sets out.

    ``held`` has the claims from the end of their attempt until their outcome is written. ``run`` calls a function in a
    database thread; the function's first argument is the operations, which determine the thread. ``suspended`` has the
    databases that cannot record anything at the moment. ``leave_room`` is called at the end of an attempt, and
    ``make_ready`` after each batch, with the states in which rows may be ready since then.
    """

    def __init__(
        self,
        run: RunInThread,
        size: int,
        suspended: Suspensions,
        leave_room: Callable[[], object] = _for_nobody,
        make_ready: Callable[[Operations, set[str]], object] = _for_nobody,
        monitors: Sequence[Monitor] = (),
    ) -> None:
        self.held: dict[int, Claim] = {}
        self.handled: Counter[str] = Counter()
        self.moved: Counter[tuple[str, str]] = Counter()
        self.failed = 0
        self.lost = 0
        self.came = asyncio.Event()
        self._run = run
        self._size = size
        self._leave_room = leave_room
        self._make_ready = make_ready
        self._monitors = monitors
        self._waiting: list[Ended] = []
        self._unwritten: list[_Unwritten] = []
        self._wrote_until = self._took = 0.0
        self._suspended = suspended
        self._outages = Outages()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, claim: Claim, outcome: Outcome) -> None:
        """Have the outcome of an attempt that has ended written."""
        self.held[id(claim)] = claim
        # Set already if others wait: both are reset together.
        if not self._waiting:
            self.came.set()
        self._waiting.append((claim, outcome))
        self._leave_room()

    def is_behind(self, operations: Operations) -> bool:
        """Return whether too many outcomes wait, or are being written, to claim more rows of a model.

        Counts the outcomes of the model's database, without models whose tables are locked by other transactions:
        nothing is claimed for such models anyway.
        """
        if not _is_open(operations):
            return True
        most = MAX_BATCHES * self._size
        if len(self._waiting) + sum(map(len, self._unwritten)) < most:
            return False
        alias = operations.alias
        open_ones = (each for each in self._unwritten if _is_open(each.batch.operations))
        unwritten = sum(len(each) for each in open_ones if each.batch.operations.alias == alias)
        return unwritten + sum(claim.operations.alias == alias for claim, _ in self._waiting) >= most

    def unrecorded(self) -> dict[str, list[Claim]]:
        """Return, by database, the claims whose outcomes cannot be recorded at the moment; any thread may call it."""
        cut_off = [key for key in self._suspended.held if isinstance(key, str)]
        held = list(self.held.values()) if cut_off else []
        return {alias: [claim for claim in held if claim.operations.alias == alias] for alias in cut_off}

    def forget(self, keys: Iterable[int]) -> None:
        """Drop claims, given by their ``id()``, that have ended or are recorded; nothing more is written for them."""
        for key in keys:
            if claim := self.held.pop(key, None):
                claim.free()

    async def gather(self) -> None:
        """Wait for as long as the last batch took to write, unless a whole batch is there.

        So batches keep the database busy for at most half of the time, even if outcomes arrive one by one. The first
        outcome after a pause is written at once.
        """
        rest = self._wrote_until + min(self._took, MAX_GATHER) - time.monotonic()
        if rest > 0 and len(self._waiting) < self._size:
            await asyncio.sleep(rest)

    async def flush(self) -> int:
        """Write the outcomes that have arrived so far; return how many were settled.

        Outcomes for an unreachable database or a locked table stay for the next time.
        """
        self.came.clear()
        # Repeated and new outcomes together: perhaps nothing else arrives that would trigger another flush.
        for monitor in self._monitors:
            monitor.ended(self._waiting)
        self._unwritten += self._batches()
        settled = 0
        started = time.monotonic()
        outages = self._outages
        while each := next((each for each in self._unwritten if _may_be_written(each, outages)), None):
            operations = each.batch.operations
            try:
                settled += await self._write(each)
            except Exception as error:  # noqa: BLE001 - raised at the end, or here if it does not pass
                operations.locks.note(RECORD, error)
                outages.note(operations.alias, error)
            else:
                if operations.locks.held:
                    operations.locks.end(RECORD)
        self._wrote_until = time.monotonic()
        self._took = self._wrote_until - started
        if self._unwritten:
            self._come_again()
        if outages.held:
            outages.raise_first()
        return settled

    def _come_again(self) -> None:
        """Schedule the outcomes whose tables were locked for when that may be tried again."""
        delays = [each.batch.operations.locks.remaining(RECORD) for each in self._unwritten]
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(min(delays), self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.came.set()

    def _batches(self) -> list[_Unwritten]:
        waiting, self._waiting = self._waiting, []
        return self._in_batches(waiting)

    def _in_batches(self, waiting: list[Ended]) -> list[_Unwritten]:
        groups: dict[Operations, list[Ended]] = defaultdict(list)
        for ended in waiting:
            groups[ended[0].operations].append(ended)
        return [_Unwritten(batch) for group in groups.values() for batch in batches_of(group, self._size)]

    async def _write(self, unwritten: _Unwritten) -> int:
        operations, batch = unwritten.batch.operations, unwritten.batch
        began = time.monotonic()
        try:
            written: Written = await self._run(record, operations, batch, again=unwritten.again)
        except Exception as error:
            # The batch may be committed and only the answer lost.
            unwritten.again = True
            if suspends(error):
                raise
            if not is_passing(error):
                # The database refuses the batch, or the driver cannot send it, and would do so again.
                instead = await self._instead(unwritten, error)
                place = self._unwritten.index(unwritten)
                self._unwritten[place : place + 1] = instead
                return 0
            self._suspended.suspend(operations.alias, one_line(error))
            self.came.set()
            raise
        for monitor in self._monitors:
            monitor.took("record", time.monotonic() - began)
        if self._suspended.held:
            self._suspended.end(operations.alias)
        self._unwritten.remove(unwritten)
        self.forget(map(id, batch.claims))
        if written.deferred:
            self.held |= {id(claim): claim for claim, _ in written.deferred}
            asyncio.get_running_loop().call_later(DEFERRED_FOR, self._add_deferred, written.deferred)
        done = len(batch.ended) - len(written.deferred)
        if not batch.released:
            self.handled[operations.label] += done
        # Even if the batch made no row ready: claims may have waited for its end.
        self._make_ready(operations, self._note(operations, batch.source, written))
        return done

    def _add_deferred(self, ended: list[Ended]) -> None:
        self._unwritten += self._in_batches(ended)
        self.came.set()

    async def _instead(self, unwritten: _Unwritten, error: Exception) -> list[_Unwritten]:
        """Return the batches to write instead of a refused batch."""
        batch = unwritten.batch
        lack = await self._run(_lack, unwritten.batch.operations) if is_of_schema(error) else ""
        if not lack:
            return self._without_refused(unwritten, error)
        if not batch.released:
            # The model lacks a column that its states save; releasing rows writes only the framework's columns.
            return [_Unwritten(OutcomeBatch.of([(claim, UNFIT) for claim in batch.claims]))]
        # The leases run out by themselves.
        self.forget(map(id, batch.claims))
        return []

    def _without_refused(self, unwritten: _Unwritten, error: Exception) -> list[_Unwritten]:
        """Return what replaces refused outcomes: first each by itself, then the refusal as an error of the attempt.

        If the error ends the stay in the state, and that is refused as well, the object stays.
        """
        if len(unwritten) > 1:
            return [_Unwritten(OutcomeBatch.of([ended]), unwritten.again) for ended in unwritten.batch.ended]
        [claim] = unwritten.batch.claims
        failure = describe(error)
        logger.error(
            "stator.record_refused",
            extra={"model": unwritten.batch.operations.label, "pk": str(claim.pk), "error": failure.message},
        )
        if not unwritten.refused:
            instead = outcomes_of([claim], [error])
        elif unwritten.batch.moved:
            instead = [(claim, Waiting(claim.state.try_interval or FALLBACK, failure))]
        else:
            # Nothing can be recorded for this object: its lease runs out, and repeated losses quarantine it.
            self.forget([id(claim)])
            return []
        return [_Unwritten(OutcomeBatch.of(instead), refused=True)]

    def note_recorded(self, operations: Operations, attempted: Attempted) -> None:
        """Count outcomes that were recorded in their handler's transaction."""
        recorded = attempted.recorded
        for monitor in self._monitors:
            monitor.ended(recorded)
        if attempted.written:
            self.handled[operations.label] += len(recorded)
            source = recorded[0][0].state if recorded else None
            if woken := self._note(operations, source, attempted.written):
                self._make_ready(operations, woken)
        self._leave_room()

    def note_elsewhere(
        self, claim: Claim, *, recorded: bool = False, moved: Iterable[str] = (), failed: int = 0, lost: int = 0
    ) -> None:
        """Count an attempt that another process made: whether it recorded it, and what came of it."""
        label, woken = claim.operations.label, set(moved)
        self.handled[label] += recorded
        self.failed += failed
        self.lost += lost
        self.moved.update((label, name) for name in woken)
        if claim.state.may_be_woken:
            woken.add(claim.state.name)
        self._make_ready(claim.operations, woken)

    def _note(self, operations: Operations, source: State | None, written: Written) -> set[str]:
        """Count what was written; return the states where rows may now be ready, or where waiting rows expect them."""
        self.failed += len(written.failures)
        self.lost += sum(not claim.ended_in_time for claim in written.lost)
        states = Counter([move.to for move in written.moves])
        for name, count in states.items():
            self.moved[operations.label, name] += count
        woken = set(states) & operations.waking
        # A gated state has room again, and an event may have come during the attempt.
        if source is not None and (source.may_be_woken or operations.conditions.gates([source])):
            woken.add(source.name)
        return woken


def record(operations: Operations, batch: OutcomeBatch, *, again: bool = False) -> Written:
    """Write a batch, then send signals and log. Runs in the recording thread."""
    written = operations.record_batch(batch, again=again)
    # Nobody listens to most moves.
    if written.lost or written.failures or transitioned.has_listeners(operations.model):
        tell(operations, written, batch.claims)
    return written


def _lack(operations: Operations) -> str:
    return lack_of(operations.model, operations.alias)


def _may_be_written(unwritten: _Unwritten, outages: Outages) -> bool:
    operations = unwritten.batch.operations
    return operations.alias not in outages.held and _is_open(operations)


def _is_open(operations: Operations) -> bool:
    """Return whether outcomes of a model may be written: no record has just timed out waiting for a lock."""
    return not operations.locks.held or operations.locks.allow(RECORD)
