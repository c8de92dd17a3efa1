"""Looks for work and does the duties when they are due."""

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

from stator import signals
from stator.conf import Settings
from stator.db import Operations
from stator.db.look import Work, look
from stator.worker.dispatcher import Lane
from stator.worker.duties import MARK_READY, PASS, PRUNE, REAP, SAMPLE, START, Duty, perform
from stator.worker.outage import Outages

# After activity the first look is taken so soon; each further one after twice the time, up to POLL_INTERVAL.
FIRST_LOOK = 0.02

# While some lane has more than there is room for, so that rows of others that come without NOTIFY wait no longer.
BUSY_LOOK = 0.25

# Where looks take long, because dead entries of the indexes cannot be removed, they take no more than this part of the
# time, as long as leases that ran out are looked for as often as promised.
LOOK_PART = 0.2

# Scheduling passes from one deletion of old reports and statistics to the next; the first pass is one.
PRUNED_EVERY = 20


class Scheduler:
    """The scheduling loop of one process: one statement per database tells which models have anything to do."""

    def __init__(
        self, operations: list[Operations], lanes: list[Lane], settings: Settings, run: Callable[..., Awaitable[Any]]
    ) -> None:
        self.stopped = False
        self.passes = 0
        self.found_nothing = False
        self._settings = settings
        self._run = run
        self._lanes = lanes
        self._operations = operations
        self._by_alias: dict[str, list[Operations]] = defaultdict(list)
        for part in operations:
            self._by_alias[part.alias].append(part)
        self._reaped: dict[Operations, float] = {}
        # When the latest pass over a database began that was made to its end.
        self._passed: dict[str, float] = {}
        self._delay = self._least = FIRST_LOOK
        self._next_due = float("inf")
        self._cut_short = asyncio.Event()
        self._at_once = False

    @property
    def databases(self) -> list[str]:
        """The aliases in which the process works."""
        return sorted(self._by_alias)

    def databases_of(self, model: Any) -> list[str]:
        """The aliases in which the process works on a model; for receivers of ``on_schedule``."""
        return sorted({operations.alias for operations in self._operations if operations.model is model})

    def soon(self, *, at_once: bool = False) -> None:
        """Look again shortly: something has just been done, so more may have come in its shadow.

        ``at_once``: there is nothing else to do meanwhile.
        """
        self._delay = FIRST_LOOK
        self._at_once = at_once
        self._cut_short.set()

    async def rest(self) -> None:
        """Sleep until the next look is due, 20 % more or less so that workers do not look in step.

        No longer than until the next row comes due, of those that the last look could see.
        """
        self._cut_short.clear()
        delay, self._delay = self._delay, min(self._settings.POLL_INTERVAL, 2 * self._delay)
        if any(lane.hungry for lane in self._lanes):
            delay = min(delay, BUSY_LOOK)
        rest = min(self._next_due - time.monotonic(), delay * random.uniform(0.8, 1.2))
        try:
            await asyncio.wait_for(self._cut_short.wait(), max(self._least, rest))
        except TimeoutError:
            return
        if not self.stopped:
            await asyncio.sleep(0 if self._at_once else self._least)
            self._delay = 2 * FIRST_LOOK

    def stop(self) -> None:
        """Begin no further look, and no further piece of a duty."""
        self.stopped = True
        self._cut_short.set()

    async def tick(self, wake: Callable[[], None]) -> None:
        """One look, and the duties that it shows to be due; ``wake`` is called when lanes became hungry.

        Where a database is away, that is raised once the others have had all of it.
        """
        outages = Outages()
        if not self.passes:
            await self.perform_pass(list(self._by_alias), outages)
        began = time.monotonic()
        work = await self._run(self.look, outages)
        took = time.monotonic() - began
        self._least = max(FIRST_LOOK, min(took * (1 / LOOK_PART - 1), self._settings.REAP_INTERVAL))
        self.found_nothing = not any(found.ready or found.suspect or found.due for found in work.values())
        times = [found.next_due for found in work.values() if found.next_due is not None]
        self._next_due = time.monotonic() + min(times, default=float("inf"))
        for operations, found in work.items():
            if operations.alias not in outages:
                with outages.noted(operations.alias):
                    await self._do(operations, found)
        if any(lane.hungry or lane.suspect for lane in self._lanes):
            wake()
        # After the look: however long a pass takes, leases that ran out do not wait for it.
        if aliases := [alias for alias in self._by_alias if alias not in outages and self._wants_pass(alias)]:
            await self.perform_pass(aliases, outages)
        outages.tell()

    def look(self, outages: Outages) -> dict[Operations, Work]:
        """What every model has to do; one statement per database."""
        found: dict[Operations, Work] = {}
        for alias, group in self._by_alias.items():
            if alias not in outages:
                with outages.noted(alias):
                    found |= look(*group)
        return found

    async def perform_pass(self, aliases: list[str], outages: Outages) -> None:
        """The duties of a scheduling pass over some databases, for every model and now and then for all together."""
        began = time.monotonic()
        await self._run(send_scheduled, self)
        for alias in aliases:
            with outages.noted(alias):
                await self._pass_over(alias)
                # Only now: a pass that the database left in the middle is made again, with what is done at the start.
                self._passed[alias] = began
        self.passes += any(alias not in outages for alias in aliases)

    async def _pass_over(self, alias: str) -> None:
        models, first = self._by_alias[alias], alias not in self._passed
        for operations in models:
            for duty in (*START, *PASS) if first else PASS:
                await self._perform(duty, operations)
        for duty in (SAMPLE, PRUNE) if first or self.passes % PRUNED_EVERY == 0 else (SAMPLE,):
            await self._perform(duty, *models)

    def _wants_pass(self, alias: str) -> bool:
        passed = self._passed.get(alias, float("-inf"))
        return time.monotonic() - passed >= self._settings.SCHEDULE_INTERVAL

    async def _do(self, operations: Operations, found: Work) -> None:
        if found.due:
            await self._perform(MARK_READY, operations)
        reaped = found.expired and self._may_reap(operations)
        if reaped:
            await self._perform(REAP, operations)
        for lane in self._lanes:
            if lane.operations is operations:
                lane.hungry = lane.hungry or found.ready or found.due
                lane.suspect = lane.suspect or found.suspect or reaped

    async def _perform(self, duty: Duty, *models: Operations) -> None:
        await self._run(perform, duty, *models, stopped=lambda: self.stopped)

    def _may_reap(self, operations: Operations) -> bool:
        now = time.monotonic()
        if now < self._reaped.get(operations, 0.0):
            return False
        # Out of step with other workers, and never later than promised.
        self._reaped[operations] = now + self._settings.REAP_INTERVAL * random.uniform(0.6, 1.0)
        return True


def send_scheduled(scheduler: Scheduler) -> None:
    """Let the project refresh what it keeps in memory; an error in a receiver is not ours to survive silently."""
    signals.on_schedule.send(scheduler, databases=scheduler.databases)
