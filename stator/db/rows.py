"""Rows of one model in one database: reading and locking them, and their leases."""

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

from stator.capabilities import Capabilities, capabilities_of
from stator.conf import Settings
from stator.db.batch import keep_quarantine, lease_key
from stator.db.claim import Claim
from stator.db.locks import WAIT, Locks
from stator.db.ordering import Lines
from stator.db.parking import PARKED_AT_ONCE
from stator.db.refusals import REAP, Refusals, unless_refused
from stator.db.retry import retrying
from stator.graph import State, StateGraph
from stator.rows import columns
from stator.rows.meta import options_of
from stator.rows.pauses import Pauses
from stator.rows.waits import waits_of
from stator.rows.workers import worker_of

# More rows than one claim takes.
MOST_CLAIMED = 100_000

# Seconds by which a clock may be set back without ending leases that are being renewed.
CLOCK_SLACK = 5.0


class Rows:
    """The rows of one managed model in one database. A vendor overrides what it can improve."""

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
        # What the table lacks, as one line; until that is repaired a worker leaves the model out.
        self.lacking = ""
        # Only a worker's operations limit how long their statements wait.
        self.locks = Locks(self.label)
        # As the latest poll found them; None before the first.
        self.pauses: Pauses | None = None

    def __reduce__(self) -> Any:
        """Pickle without the state: a handler may pickle its instance, and with it the claim and these operations."""
        return type(self), (self.model, self.alias, self.settings, self.worker_id)

    # Reading and transactions

    @property
    def connection(self) -> Any:
        """The connection of the calling thread."""
        return connections[self.alias]

    @property
    def capabilities(self) -> Capabilities:
        """What the database can do."""
        return capabilities_of(self.connection)

    @property
    def rows(self) -> QuerySet[Any]:
        """All rows of the model, independent of the project's managers."""
        return QuerySet(self.model, using=self.alias)

    @property
    def shard(self) -> int:
        """The statistics rows that the calling thread updates: threads that share one would wait for each other."""
        return int(self.worker_id[:2], 16) + 256 * (threading.get_native_id() % 127)

    def fetch(self, statement: str, params: list[Any]) -> list[Any]:
        """Return the rows of one statement."""
        with self.connection.cursor() as cursor:
            cursor.execute(statement, params)
            return list(cursor.fetchall())

    @property
    def longest_wait(self) -> float:
        """Seconds for which a worker's statement may wait for a lock of others."""
        return WAIT

    def transaction(self, *, wait: float | None = None) -> AbstractContextManager[Any]:
        """Return a short transaction for our own writes; ``wait``: seconds that it waits for a lock, if fewer."""
        return transaction.atomic(using=self.alias)

    def reading(self) -> AbstractContextManager[Any]:
        """Return a context for a query with the lock timeout of :meth:`transaction`; no transaction without one."""
        return nullcontext() if self.locks.wait is None else self.transaction()

    def handler_transaction(self) -> AbstractContextManager[Any]:
        """Return the transaction of a handler whose state is ``atomic``; the handler has no lock timeout."""
        return self.transaction()

    def hurry(self) -> None:
        """Limit how long the rest of a handler's transaction waits for locks."""

    def lease_of(self, state: State) -> float:
        """Return the seconds for which a claim in a state holds without a heartbeat."""
        return state.lease or self.settings.LEASE

    # Locks

    def lock(
        self, rows: QuerySet[Any], limit: int, *, in_order: bool = False, among: QuerySet[Any] | None = None
    ) -> list[Any]:
        """Lock up to ``limit`` rows, skipping those locked by others; return their primary keys.

        ``in_order``: the rows are many, and an index has them in the wanted order. ``among``: rows that an index has in
        that order; ``sought`` filters them, and may match few or many.
        """
        options = self._lock_options(skip_locked=self.connection.features.has_select_for_update_skip_locked)
        return list(rows.select_for_update(**options).values_list("pk", flat=True)[:limit])

    def lock_parts(self, parts: Iterable[QuerySet[Any]], limit: int) -> list[Any]:
        """Call :meth:`lock` for one queryset after the other: each can use an index, an OR of them could not."""
        locked: list[Any] = []
        for rows in parts:
            if len(locked) < limit:
                locked += self.lock(rows, limit - len(locked))
        return locked

    def keep(self, rows: QuerySet[Any]) -> set[Any]:
        """Lock rows of any model until the transaction ends; return the keys of those that nobody else is changing."""
        return set(self.lock(rows, PARKED_AT_ONCE))

    def _lock_options(self, **options: Any) -> dict[str, Any]:
        features = self.connection.features
        options["no_key"] = features.has_select_for_no_key_update
        # Lock only the row itself, not the rows that a filter joins. Django takes no name with a schema here.
        if features.has_select_for_update_of and "." not in self.model._meta.db_table:
            options["of"] = ("self",)
        return options

    # Leases

    def lock_claimed(self, claims: list[Claim]) -> list[Claim]:
        """Lock rows until the end of the transaction; return the claims that stand."""
        tokens = {claim.pk: claim.token for claim in claims}
        options = self._lock_options()
        rows = self.rows.filter(pk__in=list(tokens), state=claims[0].state.name).order_by("pk")
        found = rows.select_for_update(**options).values_list("pk", "state_claim")
        mine = {pk for pk, token in found if token == tokens[pk]}
        return [claim for claim in claims if claim.pk in mine]

    def holds(self, claim: Claim) -> bool:
        """Return whether a claim stands and its lease has not run out."""
        return self._fenced(claim).filter(state_locked_until__gt=Now()).exists()

    @retrying
    def extend(self, claim: Claim, seconds: float) -> bool:
        """Set the lease of one claim to end ``seconds`` from now; return False if the claim has ended."""
        # Handlers call this.
        with self.handler_transaction():
            return bool(self._fenced(claim).update(state_locked_until=columns.after(seconds)))

    def _fenced(self, claim: Claim) -> QuerySet[Any]:
        return self.rows.filter(pk=claim.pk, state_claim=claim.token, state=claim.state.name)

    @retrying
    def renew(self, claims: list[Claim], *, wait: float | None = None) -> set[int]:
        """Extend the leases of claims that stand; return the ``id()`` of claims that have ended.

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
        """Release the rows of a claim statement whose answer never arrived; return how many."""
        with self.transaction():
            # "Held" is in the filter because there is an index of held rows.
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
        """Return filters for leases past their end, and for leases too long to be possible: a clock was set back since.

        Index ``st_lease``, which has both kinds at its ends. An OR of the two would read all leases.
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
        """Return the rows that are still mine but were skipped because an application's transaction locks them."""
        if not self.connection.features.has_select_for_update_skip_locked:
            return set()
        mine = {(claim.pk, claim.token, claim.state.name) for claim in claims}
        with self.reading():
            found = self.rows.filter(pk__in=[claim.pk for claim in claims]).values_list("pk", "state_claim", "state")
            return {row[0] for row in found if row in mine}
