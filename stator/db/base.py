"""Claim, record and reap rows of one model in one database, through the ORM: complete, and right on every database.

Every write after a claim carries the claim's token and the state it was made in; a write that hits nothing is a
lost lease. Every statement passes over rows that somebody else has locked, so none ever waits for a row.
"""

import threading
import time
from contextlib import AbstractContextManager
from functools import cached_property
from itertools import groupby
from typing import Any
from uuid import UUID

from django.db import connections, transaction
from django.db.models import Case, DateTimeField, Q, QuerySet, When
from django.db.models.functions import Now

from stator import columns
from stator.conf import Settings
from stator.db.claim import Claim, new_token
from stator.db.keeping import keep, keep_history, keep_moves, keep_quarantine
from stator.db.retry import retrying
from stator.db.written import (
    RELEASED,
    Ended,
    Moves,
    Written,
    accept,
    by_kind,
    changes_of,
    is_written,
    kind_of,
    lease_key,
    write_key,
)
from stator.graph import State, StateGraph
from stator.indexes import place_in_line
from stator.limits import Limit
from stator.meta import options_of
from stator.pauses import Pauses, read_pauses
from stator.signals import Move
from stator.statistics import Stats
from stator.workers import worker_of


class Operations:
    """The statements on one managed model in one database. A vendor overrides what it can do better."""

    # Whether a thread of its own for each kind of statement helps; SQLite has one writer at a time.
    concurrent_writers = True

    def __init__(self, model: Any, alias: str, settings: Settings, worker_id: str) -> None:
        self.model = model
        self.alias = alias
        self.settings = settings
        self.worker_id = worker_id
        self.label: str = model._meta.label_lower
        self.graph: type[StateGraph] = model.state_graph
        self.options = options_of(model)
        # As the latest look for work found them; None before the first.
        self.pauses: Pauses | None = None

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

    def transaction(self) -> AbstractContextManager[Any]:
        """A short transaction in which the framework writes."""
        return transaction.atomic(using=self.alias)

    def handler_transaction(self) -> AbstractContextManager[Any]:
        """The transaction of a handler whose state is ``atomic``."""
        return self.transaction()

    def lease_of(self, state: State) -> float:
        """Seconds for which a claim in a state holds without a heartbeat."""
        return state.lease or self.settings.LEASE

    def probes(self) -> list[QuerySet[Any]]:
        """For each field of :class:`stator.db.look.Work` a queryset that is not empty where there is such work."""
        claimable = self.claimable(list(self.graph.automatic_states))
        return [
            claimable.filter(state_crashes=0),
            claimable.filter(state_crashes__gt=0),
            self.waiting().filter(columns.come_due()),
            self.rows.filter(self._expired()),
        ]

    # Claiming

    @retrying
    def claim(self, states: list[State], limit: int, *, token: UUID | None = None, alone: bool = False) -> list[Claim]:
        """Take up to ``limit`` ready rows in the order of their turn; ``alone``: one that lost a lease before.

        A state whose ``concurrency`` is limited is claimed by itself. Nothing is taken that is paused.
        """
        self.pauses = self.pauses or Pauses.of(self.label, read_pauses(self.alias))
        if not (states := self.pauses.running(states)):
            return []
        token = token or new_token(self.worker_id)
        claimed = time.monotonic()
        claim_rows = self._claim_limited if states[0].concurrency else self._claim_rows
        instances = claim_rows(states, 1 if alone else limit, token, alone)
        states_by_name = self.graph.states
        return [Claim(self, instance, states_by_name[instance.state], token, claimed) for instance in instances]

    def _claim_limited(self, states: list[State], limit: int, token: UUID, alone: bool) -> list[Any]:
        """Claim in one state whose concurrency is limited, one worker at a time."""
        (state,) = states
        with self.transaction():
            Limit.lock(self.alias, self.label, state.name)
            running = self.rows.filter(state_claim__isnull=False, state=state.name).count()
            room = min(limit, (state.concurrency or 0) - running)
            return self._claim_rows(states, room, token, alone) if room > 0 else []

    def _claim_rows(self, states: list[State], limit: int, token: UUID, alone: bool) -> list[Any]:
        crashed = {"state_crashes__gt": 0} if alone else {"state_crashes": 0}
        with self.transaction():
            picked = self.lock(self.claimable(states).filter(**crashed).order_by(place_in_line(), "pk"), limit)
            if not picked:
                return []
            self.rows.filter(pk__in=picked).update(**columns.claiming(token, self._lease_end()))
            found = {instance.pk: instance for instance in self.rows.filter(pk__in=picked, state_claim=token)}
        return [found[pk] for pk in picked if pk in found]

    def claimable(self, states: list[State]) -> QuerySet[Any]:
        """Ready rows in states this code knows, but for those that are paused; index ``st_ready``."""
        pauses = self.pauses or Pauses()
        states = pauses.running(states)
        rows = self.rows.filter(
            state_ready=True,
            state_claim=None,
            state__in=sorted(state.name for state in states),
            state_crashes__lt=self.settings.MAX_CRASHES,
        )
        return pauses.without_held(rows, states)

    def waiting(self) -> QuerySet[Any]:
        """Rows that workers will attempt once they are due; index ``st_rest``."""
        return self.rows.filter(
            state_ready=False,
            state_claim=None,
            state__in=self._automatic,
            state_crashes__lt=self.settings.MAX_CRASHES,
        )

    @cached_property
    def _automatic(self) -> list[str]:
        return sorted(state.name for state in self.graph.automatic_states)

    def _lease_end(self) -> Any:
        own = [When(state=state.name, then=columns.after(state.lease or 0)) for state in self._with_own_lease]
        end = columns.after(self.settings.LEASE)
        return Case(*own, default=end, output_field=DateTimeField()) if own else end

    @cached_property
    def _with_own_lease(self) -> list[State]:
        return [state for state in self.graph.automatic_states if state.lease]

    def lock(self, rows: QuerySet[Any], limit: int) -> list[Any]:
        """Primary keys of up to ``limit`` rows, locked, passing over those locked by others."""
        options = self._lock_options(skip_locked=self.connection.features.has_select_for_update_skip_locked)
        return list(rows.select_for_update(**options).values_list("pk", flat=True)[:limit])

    def _lock_options(self, **options: Any) -> dict[str, Any]:
        features = self.connection.features
        options["no_key"] = features.has_select_for_no_key_update
        # Of the row itself only, and not of what a filter joins. A name with a schema cannot be given here.
        if features.has_select_for_update_of and "." not in self.model._meta.db_table:
            options["of"] = ("self",)
        return options

    # Recording

    def record(self, ended: list[Ended], *, again: bool = False) -> Written:
        """Write outcomes whose claims stand, with their reports and statistics, in one transaction for each kind.

        ``again``: this was tried before and the answer was lost, so outcomes that are found written are accepted.
        """
        return Written.total(self.record_kind(group, again=again) for group in by_kind(ended))

    @retrying
    def record_kind(self, group: list[Ended], *, again: bool = False) -> Written:
        """As :meth:`record`, for outcomes of one kind: in one transaction, or not at all."""
        name, to = kind_of(group[0])
        state = self.graph.states[name]
        with self._recording(group):
            accepted = self._write(state, to, group)
            kept = [(claim, outcome) for claim, outcome in group if claim.pk in accepted]
            self._count(state, to, kept)
            keep(self.alias, self.label, kept)
            if self.options.history and not (to and self._keeps_moves()):
                keep_history(self.alias, self.label, kept)
        return self._sort_out(group, accepted | (self._found_written(group, accepted) if again else set()))

    def _found_written(self, group: list[Ended], accepted: set[Any]) -> set[Any]:
        """Rows that look as this outcome would have left them, and that nobody has claimed since."""
        refused = {claim.pk: (claim, outcome) for claim, outcome in group if claim.pk not in accepted}
        named = ("pk", "state", "state_version", "state_attempts", "state_claim")
        found = self.rows.filter(pk__in=list(refused)).values_list(*named)
        return {row[0] for row in found if is_written(*refused[row[0]], *row[1:])}

    def _recording(self, group: list[Ended]) -> AbstractContextManager[Any]:
        """The transaction in which outcomes of one kind are written."""
        return self.transaction()

    def _write(self, state: State, to: str, group: list[Ended]) -> set[Any]:
        """Write outcomes of one kind; return the primary keys of those accepted."""
        accepted: set[Any] = set()
        for (token, _), same in groupby(sorted(group, key=write_key), key=write_key):
            ended = list(same)
            fenced = self.rows.filter(
                pk__in=[claim.pk for claim, _ in ended], state_claim=UUID(int=token), state=state.name
            )
            mine = self.lock(fenced.order_by("pk"), len(ended))
            if mine:
                self.rows.filter(pk__in=mine).update(**changes_of(ended[0][1]))
            accepted.update(mine)
        return accepted

    def _count(self, state: State, to: str, kept: list[Ended]) -> None:
        if not kept or to == RELEASED:
            return
        failed = sum(getattr(outcome, "failure", None) is not None for _, outcome in kept)
        Stats.add(self.alias, self.label, state.name, to, shard=self.shard, handled=len(kept), failed=failed)

    def _keeps_moves(self) -> bool:
        """Whether the statement that records moves keeps their history as well."""
        return False

    def _sort_out(self, group: list[Ended], accepted: set[Any]) -> Written:
        written = Written()
        refused = [claim for claim, _ in group if claim.pk not in accepted]
        still_mine = self._still_claimed(refused) if refused else set()
        for claim, outcome in group:
            if claim.pk in accepted:
                accept(written, claim, outcome)
            elif claim.pk in still_mine:
                written.deferred.append((claim, outcome))
            else:
                written.lost.append(claim)
        return written

    def _still_claimed(self, claims: list[Claim]) -> set[Any]:
        """Which of these rows are mine but were passed over, because an application's transaction has them locked."""
        if not self.connection.features.has_select_for_update_skip_locked:
            return set()
        mine = {(claim.pk, claim.token, claim.state.name) for claim in claims}
        found = self.rows.filter(pk__in=[claim.pk for claim in claims]).values_list("pk", "state_claim", "state")
        return {row[0] for row in found if row in mine}

    @retrying
    def move_rows(self, rows: QuerySet[Any], source: str, to: State, limit: int, *, reason: str = "") -> Moves:
        """Move up to ``limit`` unclaimed rows without a handler, with history and statistics, in one transaction."""
        with self.transaction():
            picked = self.lock(rows, limit)
            found = self.rows.filter(pk__in=picked)
            versions = list(found.values_list("pk", "state_version")) if self.options.history else []
            count = found.update(**columns.entering(to)) if picked else 0
            if count:
                Stats.add(self.alias, self.label, source, to.name, shard=self.shard, handled=count, failed=0)
            keep_moves(self.alias, self.label, self.worker_id, versions, source=source, to=to.name, reason=reason)
        return Moves(count, [Move(pk, source, to.name) for pk in picked])

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
        with self.transaction():
            return bool(self._fenced(claim).update(state_locked_until=columns.after(seconds)))

    def _fenced(self, claim: Claim) -> QuerySet[Any]:
        return self.rows.filter(pk=claim.pk, state_claim=claim.token, state=claim.state.name)

    @retrying
    def renew(self, claims: list[Claim]) -> set[int]:
        """Extend the leases of claims that stand; return the ``id()`` of those whose claim has ended."""
        ended: set[int] = set()
        for (token, lease), same in groupby(sorted(claims, key=lease_key), key=lease_key):
            group = list(same)
            fenced = self.rows.filter(pk__in=[claim.pk for claim in group], state_claim=UUID(int=token))
            with self.transaction():
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
            return self.rows.filter(state_claim=token).update(**columns.releasing())

    @retrying
    def reap(self, limit: int) -> list[tuple[Any, str]]:
        """End the leases that ran out, counting a crash for each; return ``(pk, worker id)`` of the rows."""
        with self.transaction():
            expired = self.lock(self.rows.filter(self._expired()).order_by("state_locked_until"), limit)
            rows = self.rows.filter(self._expired(), pk__in=expired)
            held = [(pk, worker_of(token)) for pk, token in rows.values_list("pk", "state_claim")]
            if held:
                rows.update(**columns.reaping(self.settings.MAX_CRASHES))
                keep_quarantine(self.alias, self.label, self.rows, dict(held), self.settings.MAX_CRASHES)
        return held

    def _expired(self) -> Q:
        """Leases past their end, or further away than any can be: then the clock was set back. Index ``st_lease``."""
        beyond = columns.after(2 * self.longest_lease + 3600)
        return Q(state_claim__isnull=False) & (Q(state_locked_until__lte=Now()) | Q(state_locked_until__gt=beyond))

    @cached_property
    def longest_lease(self) -> float:
        """The most seconds that a lease may have left."""
        return max([self.settings.LEASE, self.settings.MAX_RUNTIME, *(s.lease or 0 for s in self._with_own_lease)])
