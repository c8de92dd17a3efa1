"""Gathers outcomes and writes them in batches; what comes in while one batch is written is the next batch."""

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stator import signals
from stator.columns import ready_at_once
from stator.db.base import Operations
from stator.db.claim import Claim
from stator.db.retry import is_lock_timeout, is_of_schema, is_passing
from stator.db.schema import lack_of
from stator.db.written import Ended, Written, by_kind
from stator.failures import Failure, describe
from stator.outcomes import Outcome, Released, Waiting
from stator.signals import Move
from stator.waits import wakes
from stator.worker.outage import Outages

logger = logging.getLogger("stator.worker")

# The step in which outcomes are written.
RECORD = "record"

# How long outcomes wait whose row an application's transaction has locked.
DEFERRED_FOR = 0.2

LONGEST_GATHER = 0.02

# Where attempts are quicker than the database writes, so many batches of outcomes wait before claims do.
MOST_BATCHES = 4

# Seconds until the next attempt of a state that does not say.
FALLBACK = 60.0


@dataclass(slots=True, eq=False)
class _Batch:
    """Outcomes of one kind, written together.

    ``again``: it is in doubt whether they are written already. ``refused``: they stand for one that was refused.
    """

    operations: Operations
    ended: list[Ended]
    again: bool = False
    refused: bool = False


class Recorder:
    """Outcomes on their way to the database.

    ``held`` are the claims from the end of their attempt until their outcome is written. ``woken`` is called after each
    batch with its operations and the states in which rows may be ready, or are awaited by others, because of it.
    ``run`` calls a function in a database thread; the operations are its first argument, and tell which thread it is.
    """

    def __init__(
        self, run: Callable[..., Awaitable[Any]], size: int, woken: Callable[[Operations, set[str]], None]
    ) -> None:
        self.held: dict[int, Claim] = {}
        self.handled: Counter[str] = Counter()
        self.moved: Counter[tuple[str, str]] = Counter()
        self.failed = 0
        self.lost = 0
        self.came = asyncio.Event()
        self._run = run
        self._size = size
        self._woken = woken
        self._waiting: list[Ended] = []
        self._unwritten: list[_Batch] = []
        self._wrote_until = self._took = 0.0
        # Databases in which nothing can be recorded at this moment.
        self._cut_off: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, claim: Claim, outcome: Outcome) -> None:
        """Take an outcome to be written."""
        self.held[id(claim)] = claim
        self._waiting.append((claim, outcome))
        self.came.set()

    def is_behind(self, operations: Operations) -> bool:
        """Whether so many outcomes wait, or are being written, that no more of a model should be claimed.

        That counts those of the same database, but for models that are locked by others: of those, nothing is claimed.
        """
        if not operations.locks.allow(RECORD):
            return True
        most = MOST_BATCHES * self._size
        if len(self._waiting) + sum(len(batch.ended) for batch in self._unwritten) < most:
            return False
        alias = operations.alias
        open_ones = (batch for batch in self._unwritten if batch.operations.locks.allow(RECORD))
        unwritten = sum(len(batch.ended) for batch in open_ones if batch.operations.alias == alias)
        return unwritten + sum(claim.operations.alias == alias for claim, _ in self._waiting) >= most

    def unrecorded(self) -> dict[str, list[Claim]]:
        """By database, the claims whose outcomes cannot be recorded at this moment; may be called in any thread."""
        held = list(self.held.values()) if self._cut_off else []
        return {alias: [claim for claim in held if claim.operations.alias == alias] for alias in list(self._cut_off)}

    def forget(self, keys: set[int]) -> None:
        """Hold claims no longer that have ended, by their ``id()``; what is written of them yet is refused."""
        for key in keys:
            self.held.pop(key, None)

    async def gather(self) -> None:
        """Wait for as long as the last batch took to write, unless there is a whole batch.

        So a stream of single outcomes is written in batches that keep the database busy for half of the time at most,
        while a first outcome after a pause is written at once.
        """
        rest = self._wrote_until + min(self._took, LONGEST_GATHER) - time.monotonic()
        if rest > 0 and len(self._waiting) < self._size:
            await asyncio.sleep(rest)

    async def flush(self) -> int:
        """Write what has come in so far; return how many outcomes were settled.

        Outages keep those of their database for the next time, locks of others those of their model.
        """
        self.came.clear()
        # Both: nothing else may come in that would have those flushed which came in meanwhile.
        self._unwritten += self._batches()
        settled = 0
        started = time.monotonic()
        outages = Outages()
        while batch := next((batch for batch in self._unwritten if _may_be_written(batch, outages)), None):
            with outages.noted(batch.operations.alias), batch.operations.locks.tried(RECORD):
                settled += await self._write(batch)
        self._wrote_until = time.monotonic()
        self._took = self._wrote_until - started
        self._come_again()
        outages.tell()
        return settled

    def _come_again(self) -> None:
        """Have outcomes written whose tables were locked, once that may be tried again."""
        pauses = [batch.operations.locks.pause(RECORD) for batch in self._unwritten]
        if pauses and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(min(pauses), self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.came.set()

    def _batches(self) -> list[_Batch]:
        waiting, self._waiting = self._waiting, []
        groups: dict[Operations, list[Ended]] = defaultdict(list)
        for ended in waiting:
            groups[ended[0].operations].append(ended)
        return [
            _Batch(operations, kind[start : start + self._size])
            for operations, group in groups.items()
            for kind in by_kind(group)
            for start in range(0, len(kind), self._size)
        ]

    async def _write(self, batch: _Batch) -> int:
        try:
            written: Written = await self._run(record, batch.operations, batch.ended, again=batch.again)
        except Exception as error:
            # Perhaps it was committed and only the answer was lost.
            batch.again = True
            if is_lock_timeout(error):
                raise
            if not is_passing(error):
                # The database refuses this, or it cannot even be sent there, and so it would be again.
                instead = await self._instead(batch, error)
                place = self._unwritten.index(batch)
                self._unwritten[place : place + 1] = instead
                return 0
            self._cut_off.add(batch.operations.alias)
            self.came.set()
            raise
        self._cut_off.discard(batch.operations.alias)
        self._unwritten.remove(batch)
        for claim, _ in batch.ended:
            self.held.pop(id(claim), None)
        for claim, outcome in written.deferred:
            self.held[id(claim)] = claim
            asyncio.get_running_loop().call_later(DEFERRED_FOR, self.add, claim, outcome)
        done = len(batch.ended) - len(written.deferred)
        if not isinstance(batch.ended[0][1], Released):
            self.handled[batch.operations.label] += done
        # Even where there is nothing to claim that was not there before: claims may have waited for this.
        self._woken(batch.operations, self._note(batch.operations, batch.ended, written))
        return done

    async def _instead(self, batch: _Batch, error: Exception) -> list[_Batch]:
        """Return what to write instead of a batch that was refused."""
        operations = batch.operations
        if not (is_of_schema(error) and await self._run(_lack, operations)):
            return self._without_refused(batch, error)
        if not isinstance(batch.ended[0][1], Released):
            # The model lacks a column that its states save; to release rows takes none but those of the framework.
            return [_Batch(operations, [(claim, Released()) for claim, _ in batch.ended])]
        # The leases run out.
        for claim, _ in batch.ended:
            self.held.pop(id(claim), None)
        return []

    def _without_refused(self, batch: _Batch, error: Exception) -> list[_Batch]:
        """What to write instead of outcomes that were refused: each by itself, then the refusal as an error."""
        if len(batch.ended) > 1:
            return [_Batch(batch.operations, [ended], batch.again) for ended in batch.ended]
        claim, _ = batch.ended[0]
        failure = describe(error)
        logger.error(
            "stator.record_refused",
            extra={"model": batch.operations.label, "pk": str(claim.pk), "error": failure.message},
        )
        if not batch.refused:
            delay = claim.state.try_interval or FALLBACK
            return [_Batch(batch.operations, [(claim, Waiting(delay, failure))], refused=True)]
        # Nothing can be written about it: its lease will run out, and it is quarantined should this go on.
        self.held.pop(id(claim), None)
        return []

    def note_recorded(self, operations: Operations, recorded: Sequence[Ended], written: Written) -> None:
        """Count outcomes that were recorded in the transaction of their handler."""
        self.handled[operations.label] += len(recorded)
        if woken := self._note(operations, recorded, written):
            self._woken(operations, woken)

    def note_isolated(self, claim: Claim, said: dict[str, Any]) -> None:
        """Count the attempt of another process, which recorded it; ``said``: what came of it."""
        label = claim.operations.label
        self.handled[label] += said.get("ended") == "recorded"
        self.failed += said.get("failed", 0)
        self.lost += said.get("lost", 0)
        self.moved.update((label, name) for name in said.get("moved", ()))

    def _note(self, operations: Operations, ended: Sequence[Ended], written: Written) -> set[str]:
        """Count what was written; return the states in which rows may be ready, or are awaited, because of it."""
        self.failed += len(written.failures)
        self.lost += len(written.lost)
        states = Counter(move.to for move in written.moves)
        for name, count in states.items():
            self.moved[operations.label, name] += count
        graph, model = operations.graph, operations.model
        woken = {name for name in states if ready_at_once(graph.states[name]) or wakes(model, name)}
        # A limited state has room again.
        woken.update(claim.state.name for claim, _ in ended[:1] if claim.state.concurrency)
        return woken


def _lack(operations: Operations) -> str:
    return lack_of(operations.model, operations.alias)


def _may_be_written(batch: _Batch, outages: Outages) -> bool:
    return batch.operations.alias not in outages and batch.operations.locks.allow(RECORD)


def record(operations: Operations, ended: list[Ended], *, again: bool = False) -> Written:
    """Write outcomes of one kind, then tell. Runs in the recording thread."""
    written = operations.record_kind(ended, again=again)
    tell(operations, written)
    return written


def tell(operations: Operations, written: Written) -> None:
    """Signals and log lines for what was written; call it after the commit."""
    for claim in written.lost:
        logger.warning(
            "stator.lease_lost",
            extra={"model": operations.label, "pk": str(claim.pk), "state": claim.state.name, "token": claim.token.hex},
        )
    for pk, failure in written.failures:
        # An answer of the handler and not a fault in it, but somebody may want to know that nothing tries any more.
        logger.log(
            logging.WARNING if failure.deliberate else logging.ERROR,
            "stator.attempt_failed",
            extra={"model": operations.label, "pk": str(pk), "error": failure.kind, "message_text": failure.message},
            exc_info=failure.loggable,
        )
    _send(operations, written)


def send_moves(operations: Operations, moves: list[Move], failures: Sequence[tuple[Any, Failure]] = ()) -> None:
    """Send ``transitioned`` for moves that were committed; a receiver that raises is logged."""
    _robust(signals.transitioned, operations, moves=moves, failures=failures)


def _send(operations: Operations, written: Written) -> None:
    if written.moves:
        send_moves(operations, written.moves, written.failures)
    if written.failures:
        _robust(signals.failed, operations, failures=written.failures)
    if written.lost:
        _robust(signals.lease_lost, operations, pks=[claim.pk for claim in written.lost])


def _robust(signal: Any, operations: Operations, **values: Any) -> None:
    for receiver, answer in signal.send_robust(operations.model, using=operations.alias, **values):
        if isinstance(answer, Exception):
            logger.error("stator.receiver_failed", extra={"receiver": repr(receiver)}, exc_info=answer)
