"""The scheduling loop: polls for work, and does the duties that are due."""

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime
from functools import partial

from django.db import DatabaseError
from django.db.models import Model
from django.dispatch import Signal

from stator import signals
from stator.conf import Settings
from stator.db.interface import Operations, by_scope
from stator.db.locks import together
from stator.db.probe import MAY_BE, Work, look
from stator.db.retry import is_of_remote
from stator.scopes import Scope, entered, entering
from stator.worker.dispatcher import Lanes
from stator.worker.duties import MARK_READY, PRUNE, REAP, TIME_OUT, Duty, When, duties_of, perform
from stator.worker.outage import Outages
from stator.worker.startup import FEW_SCOPES
from stator.worker.threads import RunInThread
from stator.worker.watermarks import LOOK_PART, LOOK_PART_OF_NODES, Watermarks, rest_after

# Seconds until the first poll after activity; each further pause is twice as long, up to POLL_INTERVAL.
FIRST_LOOK = 0.02

# Seconds between polls while some lane has more rows than room, so that rows without NOTIFY wait no longer.
BUSY_LOOK = 0.25

# The step that finds out which models have work.
LOOK = "look"

# Seconds that a pass waits for receivers of ``on_schedule``; after that they go on beside it.
PREPARED_WITHIN = 1.0


class Scheduler:
    """The scheduling loop of one process: one statement per database finds the models that have work."""

    def __init__(
        self,
        operations: list[Operations],
        lanes: Lanes,
        settings: Settings,
        run: RunInThread,
        prepare: RunInThread | None = None,
        kinds: Iterable[Operations] = (),
    ) -> None:
        self.stopped = False
        self.passes = 0
        self.found_nothing = False
        # What the latest poll found.
        self.work: dict[Operations, Work] = {}
        self._settings = settings
        self._run = run
        self._prepare = prepare or run
        self._preparing: asyncio.Future[None] | None = None
        self._lanes = lanes
        # The worker's own list, which changes if it works in many schemas; ``kinds`` never changes.
        self._operations = operations
        self._kinds = tuple(kinds)
        self._reaped: dict[tuple[Scope, str], float] = {}
        # When the latest complete pass over a scope began.
        self._passed: dict[Scope, float] = {}
        self._passes_in: Counter[Scope] = Counter()
        # Paths on which the project's receivers were called for the next pass.
        self._prepared: set[str] = set()
        # Duties of a pass that timed out waiting for a lock.
        self._owed: dict[tuple[Duty, Operations], None] = {}
        self._delay = self._least = FIRST_LOOK
        # When the next row of each model comes due, and the earliest of these times.
        self._due: dict[Operations, float] = {}
        self._next_due = float("inf")
        # When each scope was polled last, and where polls begin in its indexes.
        self._looked: dict[Scope, float] = {}
        self._watermarks: defaultdict[Scope, Watermarks] = defaultdict(lambda: Watermarks(settings))
        self._look_part = LOOK_PART
        self._cut_short = asyncio.Event()
        self._at_once = False

    @property
    def _by_scope(self) -> dict[Scope, list[Operations]]:
        return by_scope(self._operations)

    @property
    def databases(self) -> list[str]:
        """The aliases of the databases that the process works on."""
        return sorted({operations.alias for operations in (*self._operations, *self._kinds)})

    def databases_of(self, model: type[Model]) -> list[str]:
        """Return the aliases of the databases where the process serves a model; for receivers of ``on_schedule``."""
        there = [each for each in self._operations if each.scope.path == entered() and each.model is model]
        return sorted({operations.alias for operations in there})

    def soon(self, *, at_once: bool = False) -> None:
        """Poll again shortly: rows may have arrived unseen during the work that was just done.

        ``at_once``: there is nothing else to do meanwhile.
        """
        self._delay = FIRST_LOOK
        self._at_once = at_once
        self._cut_short.set()

    async def rest(self) -> None:
        """Sleep until the next poll, give or take 20 % so that workers do not poll in step.

        Wake up no later than when the next row comes due that the last poll saw.
        """
        self._cut_short.clear()
        delay, self._delay = self._delay, min(self._settings.POLL_INTERVAL, 2 * self._delay)
        if any(lane.is_served and (lane.hungry or lane.operations.locks.held) for lane in self._lanes):
            delay = min(delay, BUSY_LOOK)
        rest = min(self._next_due - time.monotonic(), delay * random.uniform(0.8, 1.2))
        try:
            await asyncio.wait_for(self._cut_short.wait(), max(self._least, rest))
        except TimeoutError:
            return
        if not self.stopped:
            await asyncio.sleep(0 if self._at_once else self._least)
            self._delay = 2 * FIRST_LOOK

    def is_behind(self, scope: Scope) -> bool:
        """Return whether a scope had no pass, or none for so long that even the rarest duty is due there."""
        rarest = PRUNE.every * self._settings.SCHEDULE_INTERVAL
        return time.monotonic() - self._passed.get(scope, float("-inf")) > rarest

    def owes(self, scope: Scope) -> bool:
        """Return whether a scope has yet to have a pass, or duties of one are left over."""
        return scope not in self._passed or any(operations.scope == scope for _, operations in self._owed)

    @property
    def has_passed(self) -> bool:
        """Whether every scope has had a pass."""
        return all(scope in self._passed for scope in self._by_scope)

    def stop(self) -> None:
        """Begin no further poll and no further part of a duty."""
        self.stopped = True
        self._cut_short.set()

    async def tick(self) -> None:
        """Poll once and do the duties that are due; wake the claims if lanes became hungry.

        If a database is unreachable, its error is raised after the duties for the other databases are done.
        """
        outages = Outages()
        if new := [scope for scope in self._by_scope if self._is_new(scope)]:
            await self.perform_pass(new, outages)
        began = time.monotonic()
        work = await self._run(self.look, outages)
        # Waiting for another transaction's lock costs the database nothing.
        took = time.monotonic() - began if not any(each.locks.held for each in self._operations) else 0.0
        self._least = max(FIRST_LOOK, rest_after(took, self._settings, self._look_part))
        has_work = any(own.has_rows for own in work.values())
        served = sum(not operations.lacking for operations in self._operations)
        self.found_nothing = self._saw_all and len(work) == served and not has_work
        self.work = {each: work.get(each) or self.work[each] for each in self._operations if each in work | self.work}
        self._note_due(work)
        for operations, own in work.items():
            if operations.alias not in outages:
                with outages.noted(operations.alias):
                    await self._do(operations, own)
        for scope in self._by_scope if self._owed else ():
            await self._do_owed(scope, outages)
        if self._lanes.are_wanted:
            self._lanes.woken.set()
        # The pass follows the poll, because reaping must not wait for a pass, however long that takes.
        if scopes := [scope for scope in self._by_scope if scope.alias not in outages and self._wants_pass(scope)]:
            await self.perform_pass(scopes, outages)
        outages.raise_first()

    @property
    def _saw_all(self) -> bool:
        """Whether the last polls have left out nothing that has been ready or due for long."""
        return all(self._watermarks[scope].saw_all for scope in self._by_scope)

    def _note_due(self, work: dict[Operations, Work]) -> None:
        now = time.monotonic()
        for operations, own in work.items():
            self._due[operations] = now + (float("inf") if own.next_due is None else own.next_due)
        self._due = {operations: due for operations, due in self._due.items() if operations in self.work}
        self._next_due = min(self._due.values(), default=float("inf"))

    def look(self, outages: Outages) -> dict[Operations, Work]:
        """Return what each model has to do, with one statement per scope."""
        looked: dict[Operations, Work] = {}
        asks_nodes = any(each.division.spans for each in self._operations)
        self._look_part = LOOK_PART_OF_NODES if asks_nodes else LOOK_PART
        for scope in self._to_look_at():
            if scope.alias not in outages and (group := self._served(scope)):
                self._looked[scope] = time.monotonic()
                with outages.noted(scope.alias), scope.enter():
                    all_together, look = partial(together, group, LOOK), partial(_look_at, looked)
                    self._watermarks[scope].look(group, all_together, look, looked, everything=self._at_once)
        return looked

    def _to_look_at(self) -> list[Scope]:
        """Return the scopes that are polled now: many scopes together are polled about as often as one would be."""
        scopes, now = list(self._by_scope), time.monotonic()
        if self._at_once or len(scopes) <= FEW_SCOPES:
            return scopes
        apart = min(FIRST_LOOK * len(scopes), self._settings.POLL_INTERVAL / 2)
        due = {operations.scope for operations, due in self._due.items() if due <= now}
        return [scope for scope in scopes if scope in due or now - self._looked.get(scope, float("-inf")) >= apart]

    async def perform_pass(self, scopes: list[Scope], outages: Outages) -> None:
        """Do the duties of a scheduling pass in some scopes: for each model, then for all models together.

        If there are many scopes, a poll comes after about each ``POLL_INTERVAL``; the rest have their passes later.
        """
        began = time.monotonic()
        scopes = sorted(scopes, key=lambda scope: self._passed.get(scope, float("-inf")))
        await self._send_scheduled({scope.path for scope in scopes} - self._prepared)
        self._prepared.clear()
        for number, scope in enumerate(scopes):
            if number >= FEW_SCOPES and time.monotonic() - began > self._settings.POLL_INTERVAL:
                self._prepared = {later.path for later in scopes[number:]}
                self._cut_short.set()
                break
            await self._pass_over(scope, outages)
            if scope.alias not in outages:
                # Noted only now, so that a pass interrupted by an outage is repeated with the duties of the start.
                self._passed[scope] = began
                self._passes_in[scope] += 1
            else:
                self._owed = {owed: None for owed in self._owed if owed[1].scope != scope}
        self.passes += any(scope.alias not in outages for scope in scopes)

    async def prepare(self, scope: Scope, outages: Outages) -> None:
        """Do what has to be done in a scope before its rows are claimed; its pass follows."""
        await self._send_scheduled({scope.path})
        self._prepared.add(scope.path)
        if scope.alias not in outages:
            with outages.noted(scope.alias):
                for duty in duties_of(When.FIRST):
                    await self._perform(duty, self._by_scope[scope][0])

    async def _send_scheduled(self, paths: set[str]) -> None:
        """Call the project's receivers; a receiver that waits for a lock delays the pass only for a moment."""
        self._preparing = self._preparing or asyncio.ensure_future(self._prepare(send_scheduled, self, paths))
        done, _ = await asyncio.wait([self._preparing], timeout=PREPARED_WITHIN)
        if done:
            self._preparing = None
            done.pop().result()

    async def _pass_over(self, scope: Scope, outages: Outages) -> None:
        models, first, alias = self._served(scope), self.is_behind(scope), scope.alias
        if not models:
            return
        passed = 0 if first else self._passes_in[scope]
        wanted_now = (*duties_of(When.START), *duties_of(When.PASS)) if first else duties_of(When.PASS)
        for operations in models:
            wanted = (duty for duty in wanted_now if duty.comes_in(passed) and duty.needed(operations))
            self._owed |= dict.fromkeys((duty, operations) for duty in wanted)
        await self._do_owed(scope, outages)
        if alias not in outages:
            with outages.noted(alias), scope.enter():
                for duty in (each for each in duties_of(When.TOGETHER) if each.comes_in(passed)):
                    await self._run(together, models, duty.name, partial(perform, duty, stopped=lambda: self.stopped))
        if alias not in outages and PRUNE.comes_in(passed):
            with outages.noted(alias):
                await self._perform(PRUNE, models[0])

    async def _do_owed(self, scope: Scope, outages: Outages) -> None:
        """Do the remaining duties of passes; a lock on one model does not block other models."""
        for duty, operations in list(self._owed):
            if operations.scope == scope and scope.alias not in outages and not operations.lacking:
                with outages.noted(scope.alias):
                    await self._perform(duty, operations)

    def _served(self, scope: Scope) -> list[Operations]:
        """Return the models of a scope that are served."""
        return [operations for operations in self._by_scope[scope] if not operations.lacking]

    def _is_new(self, scope: Scope) -> bool:
        """Return whether a scope has a pass before it is polled: databases at the start, paths whenever they wake."""
        return scope not in self._passed and (bool(scope.path) or not self.passes)

    def _wants_pass(self, scope: Scope) -> bool:
        passed = self._passed.get(scope, float("-inf"))
        return time.monotonic() - passed >= self._settings.SCHEDULE_INTERVAL

    async def _do(self, operations: Operations, work: Work) -> None:
        if work.past:
            # First, so that a row past its deadline is not attempted.
            await self._perform(TIME_OUT, operations)
        if work.due:
            await self._perform(MARK_READY, operations)
        reaped = work.expired and self._may_reap(operations)
        if reaped:
            await self._perform(REAP, operations)
        for lane in self._lanes:
            if lane.operations is operations:
                lane.hungry = lane.hungry or work.ready or work.due
                lane.crashed = lane.crashed or work.crashed or reaped
                lane.suspect = lane.suspect or work.suspect
                lane.more_suspects = lane.more_suspects or reaped

    async def _perform(self, duty: Duty, operations: Operations) -> None:
        """Do a duty, unless it has just timed out waiting for a lock."""
        if operations.locks.allow(duty.name):
            with operations.locks.tried(duty.name), operations.scope.enter():
                await self._run(perform, duty, operations, stopped=lambda: self.stopped)
            self._owed.pop((duty, operations), None)

    def _may_reap(self, operations: Operations) -> bool:
        now, key = time.monotonic(), (operations.scope, operations.label)
        if now < self._reaped.get(key, 0.0):
            return False
        # The pause keeps the worker out of step with other workers, and is never longer than promised.
        self._reaped[key] = now + self._settings.REAP_INTERVAL * random.uniform(0.6, 1.0)
        return True


def _look_at(looked: dict[Operations, Work], watermark: datetime | None, *part: Operations) -> None:
    """Note what each model has to do. The poll meets every node; if one is away, there may be work on the others."""
    try:
        looked.update(look(*part, watermark=watermark))
    except DatabaseError as error:
        if len(part) == 1 and part[0].division.spans and is_of_remote(error):
            looked[part[0]] = MAY_BE
        raise


def send_scheduled(scheduler: Scheduler, paths: Iterable[str]) -> None:
    """Let the project refresh what it keeps in memory; errors of receivers are raised."""
    send_in(paths, signals.on_schedule, scheduler, databases=scheduler.databases)


def send_in(paths: Iterable[str], signal: Signal, sender: object, **values: object) -> None:
    """Send a signal on each path of scopes."""
    for path in paths:
        with entering(path):
            signal.send(sender, **values)
