"""Claiming and recording rows of one model in one database through the ORM: correct on every database.

Every write after a claim names the claim's token and the state in which it was made; a write that finds no row means
a lost lease. Statements on many rows skip those that somebody else has locked; ``lock_claimed`` waits.
"""

import logging
import time
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from functools import cached_property, partial
from itertools import chain, groupby
from typing import Any
from uuid import UUID

from django.db import DatabaseError
from django.db.models import Case, DateTimeField, Q, QuerySet, When

from stator.db.batch import (
    Batch,
    Ended,
    Moves,
    Written,
    batches_of,
    changes_of,
    is_written,
    keep,
    keep_history,
    keep_moves,
    write_key,
)
from stator.db.claim import Claim, Crashes, new_token
from stator.db.instances import load_rows
from stator.db.parking import pick
from stator.db.refusals import CLAIM, in_pieces, is_refusal
from stator.db.retry import retrying
from stator.db.rows import Rows
from stator.graph import State
from stator.graph.durations import seconds_of
from stator.graph.failures import bounded
from stator.rows import columns
from stator.rows.concurrency_limits import Limit
from stator.rows.pauses import Pause, Pauses, read_pauses
from stator.rows.statistics import Stats, Stay
from stator.rows.waits import wake
from stator.signals import Move

logger = logging.getLogger("stator.worker")


class Operations(Rows):
    """The statements that claim and record. A vendor overrides those that it can improve."""

    # Claiming

    @retrying
    def claim(
        self, states: list[State], limit: int, *, token: UUID | None = None, crashes: Crashes = Crashes.NONE
    ) -> list[Claim]:
        """Claim up to ``limit`` ready rows in the order of their turn; rows that lost leases by age alone.

        A state with limited ``concurrency`` is claimed by itself. Paused rows are not claimed.
        """
        self.pauses = self.pauses or Pauses.of(self.label, self.read_pauses())
        if not (states := self.pauses.running(states)):
            return []
        token = token or new_token(self.worker_id)
        claimed = time.monotonic()
        instances = self._claim(states, limit, token, crashes)
        states_by_name = self.graph.states
        return [Claim(self, instance, states_by_name[instance.state], token, claimed) for instance in instances]

    def read_pauses(self) -> list[Pause]:
        """Return the active pauses in this database, for all models."""
        with self.reading():
            return read_pauses(self.alias)

    def _claim(self, states: list[State], limit: int, token: UUID, crashes: Crashes) -> list[Any]:
        """Claim rows together; if the database refuses that, claim those that it accepts.

        A constraint of the model may forbid what another claim has just made impossible, so the retry picks rows anew.
        """
        for claim_rows in (self._claim_rows, self._claim_pieces):
            try:
                if states[0].concurrency:
                    return self._claim_limited(states, limit, token, crashes, claim_rows)
                return claim_rows(states, limit, token, crashes)
            except DatabaseError as error:
                if self.connection.in_atomic_block or not is_refusal(error):
                    raise
                logger.info("stator.claim_refused", extra={"model": self.label, "error": bounded(str(error), 200)})
        return []

    def _claim_limited(
        self, states: list[State], limit: int, token: UUID, crashes: Crashes, claim_rows: Callable[..., list[Any]]
    ) -> list[Any]:
        """Claim in one state with limited concurrency, one worker at a time."""
        (state,) = states
        with self.transaction():
            Limit.lock(self.alias, self.label, state.name)
            running = self.rows.filter(state_claim__isnull=False, state=state.name).count()
            room = min(limit, (state.concurrency or 0) - running)
            return claim_rows(states, room, token, crashes) if room > 0 else []

    def _claim_rows(self, states: list[State], limit: int, token: UUID, crashes: Crashes) -> list[Any]:
        with self.transaction():
            picked = pick(self, states, limit, crashes)
            return self._take(token, picked) if picked else []

    def _claim_pieces(self, states: list[State], limit: int, token: UUID, crashes: Crashes) -> list[Any]:
        with self.transaction():
            picked = pick(self, states, limit, crashes)
            return list(chain.from_iterable(in_pieces(self, CLAIM, picked, partial(self._take_piece, token))))

    def _take_piece(self, token: UUID, picked: list[Any]) -> list[Any]:
        with self.transaction():
            return self._take(token, picked)

    def _take(self, token: UUID, picked: list[Any]) -> list[Any]:
        self.rows.filter(pk__in=picked).update(**columns.claiming_due(token, self.lease_end()))
        found = {row.pk: row for row in load_rows(self.rows.filter(pk__in=picked, state_claim=token))}
        return [found[pk] for pk in picked if pk in found]

    def crashed(self, crashes: Crashes) -> Q:
        """Return a filter for rows by the number of leases lost in a row; index ``st_crash`` unless that is 0."""
        few = Q(state_crashes__gt=0, state_crashes__lt=self.settings.alone_from)
        many = Q(state_crashes__gt=0, state_crashes__gte=self.settings.alone_from)
        return {Crashes.NONE: Q(state_crashes=0), Crashes.FEW: few, Crashes.MANY: many}[crashes]

    def claimable(self, states: list[State]) -> QuerySet[Any]:
        """Return the ready rows in states that this code knows, without paused ones; index ``st_ready``."""
        pauses = self.pauses or Pauses()
        states = pauses.running(states)
        rows = self.rows.filter(
            state_ready=True,
            state_claim=None,
            state__in=sorted(state.name for state in states),
            state_crashes__lt=self.settings.MAX_CRASHES,
        )
        return pauses.without_held(rows, states)

    def open_rows(self, states: list[State]) -> QuerySet[Any]:
        """Return the rows of :meth:`claimable` that the model lets this worker claim."""
        return self.claimable(states).filter(self.open_to_me())

    def open_to_me(self) -> Q:
        """Return a filter for the rows that the model lets this worker claim, without those recently refused to it."""
        others = self.refusals.others(CLAIM)
        if not self.options.claimable:
            return others
        held = (self.pauses or Pauses()).held(self.model, self.graph.automatic_states)
        return self.options.claimable(self.worker_id, held) & others

    def waiting(self, *states: str) -> QuerySet[Any]:
        """Return the rows of some or all states that workers will attempt once they are due; index ``st_rest``."""
        return self.rows.filter(
            state_ready=False,
            state_claim=None,
            state__in=states or self._automatic,
            state_crashes__lt=self.settings.MAX_CRASHES,
        )

    @cached_property
    def _automatic(self) -> list[str]:
        return sorted(state.name for state in self.graph.automatic_states)

    def lease_end(self) -> Any:
        """Return an expression for the end of a lease that begins now; states may have leases of their own."""
        own = [When(state=state.name, then=columns.after(state.lease or 0)) for state in self._with_own_lease]
        end = columns.after(self.settings.LEASE)
        return Case(*own, default=end, output_field=DateTimeField()) if own else end

    # Recording

    def record(self, ended: list[Ended], *, again: bool = False) -> Written:
        """Record outcomes whose claims stand, with reports and statistics, in one transaction for each kind.

        ``again``: an earlier try got no answer, so outcomes that are found written count as accepted.
        """
        return Written.total(self.record_batch(batch, again=again) for batch in batches_of(ended))

    @retrying
    def record_batch(self, batch: Batch, *, again: bool = False) -> Written:
        """Call :meth:`record` for outcomes of one kind: in one transaction or not at all."""
        with self._recording(batch):
            accepted = self._write(batch)
            wake(self.model, self.alias, batch.to, accepted)
            kept = batch.only(accepted)
            self._save(kept)
            keep(self.alias, self.label, kept)
            if self._keeps_apart(batch):
                keep_history(self.alias, self.label, kept.ended, accepted)
        return self._sort_out(batch, {*accepted, *self._found_written(batch, accepted)} if again else accepted)

    def _found_written(self, batch: Batch, accepted: Collection[Any]) -> set[Any]:
        """Return the refused rows that look as if their outcome had been written."""
        refused = {claim.pk: (claim, outcome) for claim, outcome in batch.ended if claim.pk not in accepted}
        named = ("pk", "state", "state_version", "state_attempts", "state_claim")
        with self.reading():
            found = self.rows.filter(pk__in=list(refused)).values_list(*named)
            return {row[0] for row in found if is_written(*refused[row[0]], *row[1:])}

    def _recording(self, batch: Batch) -> AbstractContextManager[Any]:
        """Return the transaction in which a batch is written."""
        return self.transaction()

    def _write(self, batch: Batch) -> dict[Any, float | None]:
        """Write outcomes and their statistics; return the primary keys of the accepted ones.

        For models with history, the values are the seconds that the rows had been in the state that they left.
        """
        accepted, stays = dict[Any, float | None](), list[Stay]()
        for (token, _), same in groupby(sorted(batch.ended, key=write_key), key=write_key):
            ended = list(same)
            fenced = self.rows.filter(
                pk__in=[claim.pk for claim, _ in ended], state_claim=UUID(int=token), state=batch.source.name
            )
            mine = self.lock(fenced.order_by("pk"), len(ended))
            if mine:
                rows = self.rows.filter(pk__in=mine)
                accepted |= dict.fromkeys(mine)
                if batch.moved:
                    stays.append(self._about_to_leave(rows, accepted))
                rows.update(**changes_of(ended[0][1]))
        if not batch.released:
            failed = sum(outcome.failure is not None for _, outcome in batch.only(accepted).ended)
            edge = (self.alias, self.label, batch.source.name, batch.to)
            Stats.add(*edge, shard=self.shard, handled=len(accepted), failed=failed, stays=stays)
        return accepted

    def _about_to_leave(self, rows: QuerySet[Any], accepted: dict[Any, float | None]) -> Stay:
        """Return how long the rows have been in their state in total; for history, also note each in ``accepted``."""
        if not self.options.history:
            return Stay.of(rows)
        each = {pk: seconds_of(stayed) for pk, stayed in rows.values_list("pk", columns.stayed())}
        accepted |= each
        return Stay(sum(each.values()), max(each.values(), default=0.0))

    def _save(self, kept: Batch) -> None:
        """Write the fields that the state ``saves``; the preceding write has locked the rows."""
        for claim, outcome in kept.ended if kept.saves else ():
            if values := outcome.values:
                self.rows.filter(pk=claim.pk).update(**values)

    def _keeps_apart(self, batch: Batch) -> bool:
        """Return whether the history of a batch takes a statement of its own."""
        return self.options.history and (batch.moved or batch.failed)

    def _sort_out(self, batch: Batch, accepted: Collection[Any]) -> Written:
        written = batch.only(accepted).accepted()
        if len(accepted) < len(batch.ended):
            refused = [ended for ended in batch.ended if ended[0].pk not in accepted]
            still_mine = self._still_claimed([claim for claim, _ in refused])
            written.deferred = [ended for ended in refused if ended[0].pk in still_mine]
            written.lost = [claim for claim, _ in refused if claim.pk not in still_mine]
        return written

    @retrying
    def move_rows(self, rows: QuerySet[Any], source: str, to: State, limit: int, *, reason: str = "") -> Moves:
        """Move up to ``limit`` unclaimed rows without a handler, with history and statistics, in one transaction."""
        with self.transaction():
            picked = self.lock(rows, limit)
            found = self.rows.filter(pk__in=picked)
            kept = list(found.values_list("pk", "state_version", columns.stayed())) if self.options.history else []
            stays = [Stay.of(found)] if picked else []
            count = found.update(**columns.entering(to)) if picked else 0
            wake(self.model, self.alias, to.name, picked)
            Stats.add(self.alias, self.label, source, to.name, shard=self.shard, handled=count, stays=stays)
            keep_moves(self.alias, self.label, self.worker_id, kept, source=source, to=to.name, reason=reason)
        return Moves(count, [Move(pk, source, to.name) for pk in picked])
