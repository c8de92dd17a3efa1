"""The schemas of a worker: it serves those with work, and one look for all the others finds out which get some.

A schema rests once there is nothing to attempt, to watch or to do a chore for in it. Then it costs no poll, no pass
and no lane. It is looked into again when somebody has written to its tables, when a row comes due, when a notification
names it, and every few minutes in any case.
"""

import logging
import random
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from django.db.models import Model

from stator.db import operations_in
from stator.db.interface import Operations
from stator.db.locks import limit_waits
from stator.extensions.schemas.looks import MAX_REST, by_filled, end_session, rests, write_in_each, written_since
from stator.scopes import Scope
from stator.statements import Statement
from stator.worker.dispatcher import lanes_of
from stator.worker.outage import Outages
from stator.worker.serving import Served, Serving
from stator.worker.startup import FEW_SCOPES, Scopes, Unusable

logger = logging.getLogger("stator.worker")

# Seconds without work after which a schema rests, and the least that it must be able to.
IDLE = 5.0
MIN_REST = 5.0

# The schema of a row is served again this many seconds before the row is due.
EARLY = 2.0

# The most schemas that one look takes.
LOOKED_INTO = 200

# Schemas that one session looks into.
MAX_LOOKS = 200

# Schemas whose operations are kept while they rest: they have compiled statements.
KEPT = 100


@dataclass(slots=True)
class _Rest:
    """A schema that is not served: its tables, what was written to them, and when it is looked into again."""

    tables: Mapping[type[Model], int]
    counters: dict[int, int]
    until: float = 0.0

    @classmethod
    def of(cls, tables: Mapping[type[Model], int]) -> "_Rest":
        # No counter is below zero, so each is read before the first look.
        return cls(tables, {number: -1 for number in tables.values() if number})

    @property
    def is_counted(self) -> bool:
        """Whether the server counts what is written to its tables."""
        return len(self.counters) == len(self.tables)


class Resting(Serving):
    """The schemas of a worker, served or resting.

    ``scopes`` are the schemas with the ids of their tables, ``find`` returns them anew. ``run`` calls functions in a
    thread with its own connections.
    """

    def __init__(self, worker: Any, scopes: Scopes, find: Served) -> None:
        super().__init__(worker)
        self._scopes = scopes
        self._find = find
        self._run = worker.run_duty
        self._looked_at = time.monotonic()
        # When the resting schemas are looked at next, and whether one of them does not wait for that.
        self._next, self._called = 0.0, False
        self._resting = {scope: _Rest.of(tables) for scope, tables in scopes.items()}
        # When each schema that is served had work.
        self._served: dict[Scope, float] = {}
        # Operations of schemas that were served once, the latest last.
        self._kept: dict[Scope, list[Operations]] = {}
        self._left_out: dict[str, str] = {}
        # Schemas that were looked into since the connection was opened.
        self._looks: Counter[str] = Counter()

    @property
    def looks_soon(self) -> bool:  # type: ignore[override]
        """Whether a schema is to be looked into now."""
        now = time.monotonic()
        return any(rest.until <= now for rest in self._resting.values())

    def labels(self) -> dict[Scope, list[str]]:
        """Return the labels of the models in each resting schema; any thread may call it."""
        return {
            scope: sorted(model._meta.label_lower for model in rest.tables)
            for scope, rest in self._resting.copy().items()
        }

    def write(self, alias: str, paths: list[str], statement: Statement) -> None:
        """Send a statement in several schemas, in the calling thread."""
        write_in_each(alias, paths, statement)

    def call(self, scope: Scope) -> bool:
        """Have a schema looked into at the next look; return whether it rests."""
        rest = self._resting.get(scope)
        if rest:
            rest.until, self._called = 0.0, True
        return rest is not None

    async def begin(self) -> None:
        """Serve all schemas if they are few."""
        await self._worker.reach(self.serve_few)

    async def serve_few(self) -> None:
        """Serve all schemas if they are few."""
        if len(self._scopes) <= FEW_SCOPES:
            for scope in list(self._resting):
                await self._serve(scope)
                self._claim_in(scope)

    async def look(self, outages: Outages) -> None:
        """Look into the schemas whose time has come; serve them if they have work, else let them rest."""
        if not self._called and time.monotonic() < self._next:
            return
        self._next, self._called = time.monotonic() + self._worker.settings.POLL_INTERVAL, False
        if time.monotonic() - self._looked_at >= self._worker.settings.SCHEDULE_INTERVAL:
            await self._find_again()
        await self.serve_few()
        if len(self._scopes) > FEW_SCOPES:
            self._let_idle_rest()
        by_alias: dict[str, dict[Scope, _Rest]] = defaultdict(dict)
        for scope, rest in self._resting.items():
            by_alias[scope.alias][scope] = rest
        for alias, resting in by_alias.items():
            with outages.noted(alias):
                await self._look(alias, resting, outages)

    async def _find_again(self) -> None:
        self._looked_at = time.monotonic()
        try:
            scopes, left_out = await self._run(self._find)
        except Unusable as error:
            # The schemas that are known are served as before.
            logger.warning("stator.schemas_not_found", extra={"why": str(error)})
            return
        for schema, why in left_out.items():
            if self._left_out.get(schema) != why:
                logger.warning("stator.schema_left_out", extra={"why": why})
        self._left_out = left_out
        for scope in [scope for scope in self._scopes if scopes.get(scope) != self._scopes[scope]]:
            self._leave(scope)
            self._resting.pop(scope, None)
            self._kept.pop(scope, None)
        for scope in [scope for scope in scopes if self._scopes.get(scope) != scopes[scope]]:
            self._resting[scope] = _Rest.of(scopes[scope])
            logger.info("stator.schema_found", extra=scope.fields())
        self._scopes = scopes

    async def _look(self, alias: str, resting: dict[Scope, _Rest], outages: Outages) -> None:
        counters = {number: known for rest in resting.values() for number, known in rest.counters.items()}
        written = await self._run(written_since, alias, counters)
        for rest in resting.values() if written else ():
            if new := written.keys() & rest.counters.keys():
                rest.counters.update({number: written[number] for number in new})
                rest.until = 0.0
        now = time.monotonic()
        due = {scope: rest for scope, rest in resting.items() if rest.until <= now}
        self._called = self._called or len(due) > LOOKED_INTO
        due = dict(islice(due.items(), LOOKED_INTO))
        groups = await self._run(by_filled, alias, {scope: rest.tables for scope, rest in due.items()}) if due else {}
        for models, scopes in groups.items():
            if not models:
                for scope in scopes:
                    self._let_rest(scope, MAX_REST)
                continue
            kinds = [each for each in self._worker.kinds if each.model in models and each.alias == alias]
            left = await self._run(rests, kinds, [scope.path for scope in scopes])
            self._looks[alias] += len(scopes)
            for scope in scopes:
                await self._decide(scope, left.get(scope.path), outages)
        if self._looks[alias] >= MAX_LOOKS:
            self._looks[alias] = 0
            await self._run(end_session, alias)

    async def _decide(self, scope: Scope, left: float | None, outages: Outages) -> None:
        """Serve a schema that has something to do in ``left`` seconds; None if its tables are not as they should be."""
        if left is None or left >= MIN_REST:
            self._let_rest(scope, left)
            return
        await self._serve(scope)
        scheduler = self._worker.scheduler
        if scheduler.is_behind(scope):
            await scheduler.prepare(scope, outages)
        self._claim_in(scope)

    def _let_rest(self, scope: Scope, left: float | None) -> None:
        rest, longest = self._resting[scope], MAX_REST if left is None else left - EARLY
        if left is None or not rest.is_counted:
            longest = min(longest, self._worker.settings.SCHEDULE_INTERVAL)
        rest.until = time.monotonic() + longest * random.uniform(0.8, 1.0)

    async def _serve(self, scope: Scope) -> None:
        worker, first = self._worker, scope not in self._kept
        operations = self._kept.pop(scope, None) or [
            operations_in(scope, model, worker.settings, worker.id) for model in self._scopes[scope]
        ]
        if first:
            limit_waits(operations)
        worker.operations.extend(operations)
        if first:
            await worker.tables.read(operations)
            await worker.send_start(scope.path)
        self._kept[scope] = operations
        del self._resting[scope]
        self._served[scope] = time.monotonic()

    def _claim_in(self, scope: Scope) -> None:
        self._worker.dispatcher.add([lane for each in self._kept[scope] for lane in lanes_of(each)])

    def _let_idle_rest(self) -> None:
        """Have schemas looked into that had no work lately; they are served on if there is some."""
        now, busy = time.monotonic(), self._busy()
        for scope, had_work in list(self._served.items()):
            if scope in busy:
                self._served[scope] = now
            elif now - had_work >= IDLE:
                self._leave(scope)
                self._resting[scope] = _Rest.of(self._scopes[scope])

    def _busy(self) -> set[Scope]:
        worker = self._worker
        work = (
            operations for operations, work_of in worker.scheduler.work.items() if work_of.has_rows or work_of.expired
        )
        claimed = (claim.operations for claim in worker.claims())
        doubtful = (doubt.operations for doubt in worker.dispatcher.doubts)
        wanted = (lane.operations for lane in worker.lanes if lane.wanted)
        left_out = worker.tables.left_out
        return {each.scope.of_all for group in (work, claimed, doubtful, wanted, left_out) for each in group} | {
            scope for scope in self._served if worker.scheduler.owes(scope)
        }

    def _leave(self, scope: Scope) -> None:
        if self._served.pop(scope, None) is None:
            return
        worker = self._worker
        worker.operations[:] = [each for each in worker.operations if each.scope != scope]
        worker.dispatcher.remove(scope)
        unused = [each for each in self._kept if each not in self._served]
        for each in unused[: max(0, len(unused) - KEPT)]:
            del self._kept[each]
