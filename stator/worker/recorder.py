"""Gathers outcomes and writes them in batches; what comes in while one batch is written is the next batch."""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

from stator import signals
from stator.columns import ready_at_once
from stator.db.base import Ended, Operations, Written
from stator.db.claim import Claim
from stator.outcomes import Outcome, Released
from stator.signals import Move

logger = logging.getLogger("stator.worker")

# How long outcomes wait whose row an application's transaction has locked.
DEFERRED_FOR = 0.2


class Recorder:
    """Outcomes on their way to the database.

    ``held`` are the claims from the end of their attempt until their outcome is written. ``woken`` is called with
    each operations whose rows became ready by what was written.
    """

    def __init__(
        self, run: Callable[..., Awaitable[Any]], batch: int, woken: Callable[[Operations, set[str]], None]
    ) -> None:
        self.held: dict[int, Claim] = {}
        self.handled: Counter[str] = Counter()
        self.moved: Counter[tuple[str, str]] = Counter()
        self.failed = 0
        self.lost = 0
        self.came = asyncio.Event()
        self._run = run
        self._batch = batch
        self._woken = woken
        self._waiting: list[Ended] = []

    def add(self, claim: Claim, outcome: Outcome) -> None:
        """Take an outcome to be written."""
        self.held[id(claim)] = claim
        self._waiting.append((claim, outcome))
        self.came.set()

    async def flush(self) -> int:
        """Write what has come in so far; return how many outcomes were settled. Outages keep them for the next time."""
        self.came.clear()
        waiting, self._waiting = self._waiting, []
        groups: dict[Operations, list[Ended]] = defaultdict(list)
        for ended in waiting:
            groups[ended[0].operations].append(ended)
        settled = 0
        for operations, group in groups.items():
            for start in range(0, len(group), self._batch):
                settled += await self._write(operations, group[start : start + self._batch])
        return settled

    async def _write(self, operations: Operations, batch: list[Ended]) -> int:
        try:
            written: Written = await self._run(record, operations, batch)
        except BaseException:
            self._waiting.extend(batch)
            raise
        for claim, outcome in batch:
            self.held.pop(id(claim), None)
            self.handled[operations.label] += not isinstance(outcome, Released)
        for claim, outcome in written.deferred:
            self.held[id(claim)] = claim
            asyncio.get_running_loop().call_later(DEFERRED_FOR, self.add, claim, outcome)
        self._note(operations, written)
        return len(batch) - len(written.deferred)

    def _note(self, operations: Operations, written: Written) -> None:
        self.failed += len(written.failures)
        self.lost += len(written.lost)
        states = Counter(move.to for move in written.moves)
        for name, count in states.items():
            self.moved[operations.label, name] += count
        woken = {name for name in states if ready_at_once(operations.graph.states[name])}
        if woken:
            self._woken(operations, woken)


def record(operations: Operations, batch: list[Ended]) -> Written:
    """Write outcomes, then tell: signals and log lines follow the commit. Runs in the recording thread."""
    written = operations.record(batch)
    for claim in written.lost:
        logger.warning(
            "stator.lease_lost",
            extra={"model": operations.label, "pk": str(claim.pk), "state": claim.state.name, "token": claim.token.hex},
        )
    for pk, failure in written.failures:
        logger.error(
            "stator.attempt_failed",
            extra={"model": operations.label, "pk": str(pk), "error": failure.kind, "message_text": failure.message},
        )
    _send(operations, written)
    return written


def send_moves(operations: Operations, moves: list[Move]) -> None:
    """Send ``transitioned`` for moves that were committed; a receiver that raises is logged."""
    _robust(signals.transitioned, operations, moves=moves)


def _send(operations: Operations, written: Written) -> None:
    if written.moves:
        send_moves(operations, written.moves)
    if written.failures:
        _robust(signals.failed, operations, failures=written.failures)
    if written.lost:
        _robust(signals.lease_lost, operations, pks=[claim.pk for claim in written.lost])


def _robust(signal: Any, operations: Operations, **values: Any) -> None:
    for receiver, answer in signal.send_robust(operations.model, using=operations.alias, **values):
        if isinstance(answer, Exception):
            logger.error("stator.receiver_failed", extra={"receiver": repr(receiver)}, exc_info=answer)
