"""The rows of one model in one database: how they are read and locked, and the leases that hold them."""

import threading
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from itertools import chain, groupby
from typing import Any
from uuid import UUID

from django.db import connections, transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from stator import columns
from stator.conf import Settings
from stator.db.claim import Claim
from stator.db.keeping import keep_quarantine
from stator.db.lines import Lines
from stator.db.locks import WAIT, Locks
from stator.db.parking import PARKED_AT_ONCE
from stator.db.refusals import REAP, Refusals, unless_refused
from stator.db.retry import retrying
from stator.db.written import lease_key
from stator.graph import State, StateGraph
from stator.meta import options_of
from stator.pauses import Pauses
from stator.waits import waits_of
from stator.workers import worker_of

# More rows than one claim takes.
MOST_CLAIMED = 100_000

# Seconds by which clocks are set back in passing: no lease that somebody renews may end because of that.
CLOCK_SLACK = 5.0


class Rows:
    """The rows of one managed model in one database. A vendor overrides what it can do better."""

    # Whether a thread of its own for each kind of statement helps; SQLite has one writer at a time.
    concurrent_writers = True

    # Whether others lock single tables, rather than the whole database.
    locks_tables = True

    def __init__(self, model: Any, alias: str, settings: Settings, worker_id: str) -> None:
        self.model = model
        self.alias = alias
        self.settings = settings
        self.worker_id = worker_id
        self.label: str = model._meta.label_lower
        self.pk_name: str = model._meta.pk.attname
        self.graph: type[StateGraph] = model.state_graph
        self.options = options_of(model)
        self.waits = waits_of(model)
        self.lines = Lines(self)
        self.refusals = Refusals(self.label)
        # What the table lacks, as one line; meanwhile a worker leaves the model out.
        self.lacking = ""
        # Only those of a worker limit how long their statements wait.
        self.locks = Locks(self.label)
        # As the latest look for work found them; None before the first.
        self.pauses: Pauses | None = None

    def __reduce__(self) -> Any:
        """An instance in the hands of a handler may be pickled, and with it its claim and these."""
        return type(self), (self.model, self.alias, self.settings, self.worker_id)

    # Reading and transactions

    @property
    def connection(self) -> Any:
        """The connection of the calling thread."""
        return connections[self.alias]

    @property
    def rows(self) -> QuerySet[Any]:
        """All rows of the model, by none of the project's managers."""
        return QuerySet(self.model, using=self.alias)

    @property
    def shard(self) -> int:
        """Which rows of the statistics the calling thread adds to: threads that share one would wait for each other."""
        return int(self.worker_id[:2], 16) + 256 * (threading.get_native_id() % 127)

    def fetch(self, statement: str, params: list[Any]) -> list[Any]:
        """The rows of one statement."""
        with self.connection.cursor() as cursor:
            cursor.execute(statement, params)
            return list(cursor.fetchall())

    @property
    def longest_wait(self) -> float:
        """Seconds for which a worker's statement may wait for a lock of others."""
        return WAIT

    def transaction(self, *, wait: float | None = None) -> AbstractContextManager[Any]:
        """A short transaction in which the framework writes; ``wait``: seconds it waits for a lock, if fewer."""
        return transaction.atomic(using=self.alias)

    def reading(self) -> AbstractContextManager[Any]:
        """A query that waits for locks as long as :meth:`transaction` does; no transaction where that has no limit."""
        return nullcontext() if self.locks.wait is None else self.transaction()

    def handler_transaction(self) -> AbstractContextManager[Any]:
        """The transaction of a handler whose state is ``atomic``; the handler waits for locks as long as it likes."""
        return self.transaction()

    def hurry(self) -> None:
        """Have the rest of a handler's transaction wait for locks no longer than a worker may."""

    def lease_of(self, state: State) -> float:
        """Seconds for which a claim in a state holds without a heartbeat."""
        return state.lease or self.settings.LEASE

    # Locks

    def lock(
        self, rows: QuerySet[Any], limit: int, *, in_order: bool = False, among: QuerySet[Any] | None = None
    ) -> list[Any]:
        """Primary keys of up to ``limit`` rows, locked, passing over those locked by others.

        ``in_order``: they are many, and an index has them in the order that is asked for. ``among``: an index has
        these rows in that order, of which those that are ``sought`` are asked for, few or many.
        """
        options = self._lock_options(skip_locked=self.connection.features.has_select_for_update_skip_locked)
        return list(rows.select_for_update(**options).values_list("pk", flat=True)[:limit])

    def lock_parts(self, parts: Iterable[QuerySet[Any]], limit: int) -> list[Any]:
        """As :meth:`lock`, of one queryset after the other: each has an index that an OR of them has not."""
        locked: list[Any] = []
        for rows in parts:
            if len(locked) < limit:
                locked += self.lock(rows, limit - len(locked))
        return locked

    def keep(self, rows: QuerySet[Any]) -> set[Any]:
        """Primary keys of rows of any model that nobody else is changing, and nobody can until the transaction ends."""
        return set(self.lock(rows, PARKED_AT_ONCE))

    def _lock_options(self, **options: Any) -> dict[str, Any]:
        features = self.connection.features
        options["no_key"] = features.has_select_for_no_key_update
        # Of the row itself only, and not of what a filter joins. A name with a schema cannot be given here.
        if features.has_select_for_update_of and "." not in self.model._meta.db_table:
            options["of"] = ("self",)
        return options

    # Leases

    def lock_claimed(self, claims: list[Claim]) -> list[Claim]:
        """Lock rows until the end of the transaction; return those of the claims that stand."""
        tokens = {claim.pk: claim.token for claim in claims}
        options = self._lock_options()
        rows = self.rows.filter(pk__in=list(tokens), state=claims[0].state.name).order_by("pk")
        found = rows.select_for_update(**options).values_list("pk", "state_claim")
        mine = {pk for pk, token in found if token == tokens[pk]}
        return [claim for claim in claims if claim.pk in mine]

    def holds(self, claim: Claim) -> bool:
        """Whether a claim stands and its lease has not run out."""
        return self._fenced(claim).filter(state_locked_until__gt=Now()).exists()

    @retrying
    def extend(self, claim: Claim, seconds: float) -> bool:
        """Set the lease of one claim to end ``seconds`` from now; False when the claim has ended."""
        # Called by handlers.
        with self.handler_transaction():
            return bool(self._fenced(claim).update(state_locked_until=columns.after(seconds)))

    def _fenced(self, claim: Claim) -> QuerySet[Any]:
        return self.rows.filter(pk=claim.pk, state_claim=claim.token, state=claim.state.name)

    @retrying
    def renew(self, claims: list[Claim], *, wait: float | None = None) -> set[int]:
        """Extend the leases of claims that stand; return the ``id()`` of those whose claim has ended.

        ``wait``: seconds that it waits for a lock, if fewer than usual.
        """
        ended: set[int] = set()
        for (token, lease), same in groupby(sorted(claims, key=lease_key), key=lease_key):
            group = list(same)
            fenced = self.rows.filter(pk__in=[claim.pk for claim in group], state_claim=UUID(int=token))
            with self.transaction(wait=wait):
                mine = set(self.lock(fenced.order_by("pk"), len(group)))
                self.rows.filter(pk__in=mine).update(state_locked_until=columns.after(lease))
            others = [claim for claim in group if claim.pk not in mine]
            locked_by_others = self._still_claimed(others) if others else set()
            ended.update(id(claim) for claim in others if claim.pk not in locked_by_others)
        return ended

    @retrying
    def release_token(self, token: UUID) -> int:
        """Hand back whatever a claim statement took whose answer never arrived; return how many rows."""
        with self.transaction():
            # Of those that are held: an index has them.
            taken = self.lock(self.rows.filter(state_claim__isnull=False, state_claim=token), MOST_CLAIMED)
            return self.rows.filter(pk__in=taken).update(**columns.releasing())

    def reap(self, limit: int) -> list[tuple[Any, str]]:
        """End the leases that ran out, counting a crash for each; return ``(pk, worker id)`` of the rows."""
        parts = [self.rows.filter(part).order_by("state_locked_until") for part in self.expired()]
        return list(chain.from_iterable(unless_refused(self, REAP, parts, limit, self._reap_some)))

    @retrying
    def _reap_some(self, parts: list[QuerySet[Any]], limit: int) -> list[tuple[Any, str]]:
        with self.transaction():
            rows = self.rows.filter(pk__in=self.lock_parts(parts, limit))
            held = [(pk, worker_of(token)) for pk, token in rows.values_list("pk", "state_claim")]
            if held:
                rows.update(**columns.reaping(self.settings.MAX_CRASHES, self._spared))
                keep_quarantine(self.alias, self.label, self.rows, dict(held), self.settings.MAX_CRASHES)
        return held

    @cached_property
    def _spared(self) -> list[str]:
        return sorted(state.name for state in self.graph.automatic_states if not state.quarantine)

    def expired(self) -> list[Q]:
        """Leases past their end, and those that end later than any can: they were made before the clock was set back.

        Index ``st_lease``, of which either is an end. Asked for together they would have all leases read.
        """
        held, beyond = Q(state_claim__isnull=False), columns.after(self.longest_lease + CLOCK_SLACK)
        return [held & Q(state_locked_until__lte=Now()), held & Q(state_locked_until__gt=beyond)]

    @cached_property
    def longest_lease(self) -> float:
        """The most seconds that a lease may have left."""
        return max([self.settings.LEASE, self.settings.MAX_RUNTIME, *(s.lease or 0 for s in self._with_own_lease)])

    @cached_property
    def _with_own_lease(self) -> list[State]:
        return [state for state in self.graph.automatic_states if state.lease]

    def _still_claimed(self, claims: list[Claim]) -> set[Any]:
        """Which of these rows are mine but were passed over, because an application's transaction has them locked."""
        if not self.connection.features.has_select_for_update_skip_locked:
            return set()
        mine = {(claim.pk, claim.token, claim.state.name) for claim in claims}
        with self.reading():
            found = self.rows.filter(pk__in=[claim.pk for claim in claims]).values_list("pk", "state_claim", "state")
            return {row[0] for row in found if row in mine}
