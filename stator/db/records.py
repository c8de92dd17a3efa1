"""Records of outcomes, and moves without a handler, through the ORM: correct on every database.

Every write after a claim names the claim's token and the state of the row when it was claimed; a write that finds no
row means a lost lease.
"""

import threading
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from itertools import groupby
from uuid import UUID

from django.db.models import F, Model, QuerySet, Value

from stator.db.history import keep_history, logged, report_of
from stator.db.interface import Claim, Ended, Moves, Operations, OutcomeBatch, Written, batches_of
from stator.db.leases import still_claimed
from stator.db.steps import forget_steps
from stator.db.values import Pk
from stator.graph import State
from stator.graph.durations import seconds_of
from stator.graph.outcomes import Moved, Outcome, Released, Waiting
from stator.rows import columns
from stator.rows.clock import Seconds
from stator.rows.life import OF_LIFE
from stator.rows.reports import History, keep_entries, keep_reports
from stator.rows.state_column import StateField
from stator.rows.statistics import Stats, Stay
from stator.rows.transitions import Locked, entered, note_left
from stator.rows.watches import WaiterHeld
from stator.signals import Move
from stator.statements import Statement


class Records:
    """Records of attempts on the rows of one model."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    def record(self, ended: list[Ended], *, last: bool = False) -> Written:
        """Record outcomes of valid claims, with reports and statistics, in one transaction for each kind.

        ``last``: the transaction has nothing else to do, so the last statement may commit it.
        """
        batches = batches_of(ended)
        last = last and len(batches) == 1
        return Written.total(batch.operations.record_batch(batch, last=last) for batch in batches)

    def record_batch(self, batch: OutcomeBatch, *, again: bool = False, last: bool = False) -> Written:
        """Call :meth:`record` for outcomes of one kind: in one transaction or not at all.

        ``again``: an earlier try got no answer, so outcomes that are found written count as accepted. Outcomes that may
        move an object that another transaction holds are left out, to be written later.
        """
        try:
            return self._record_batch(batch, again=again, last=last)
        except WaiterHeld as held:
            later = set(held.pks)
            others = [ended for ended in batch.ended if ended[0].pk not in later]
            written = self.record_batch(OutcomeBatch.of(others), again=again, last=last) if others else Written()
            written.deferred += [ended for ended in batch.ended if ended[0].pk in later]
            return written

    def _record_batch(self, batch: OutcomeBatch, *, again: bool, last: bool) -> Written:
        operations = self._operations
        # In the transaction of a handler, what it has written would be lost.
        wait = operations.connection.in_atomic_block
        with self._recording(batch):
            accepted = self._write(batch, last=last)
            kept = batch.only(accepted)
            if kept.saves and not self._saves_at_once(batch):
                self._save(kept)
            if kept.reported:
                reports = [report for ended in kept.ended if (report := report_of(operations.label, *ended))]
                keep_reports(operations.alias, operations.label, reports)
            if operations.recorded and accepted and batch.begun and not self._keeps_attempts(batch):
                operations.recorded(operations.alias, kept.ended)
            if self._has_history(batch) and not self._kept_with(batch):
                keep_history(operations.alias, operations.label, kept.ended, accepted)
            if batch.stepped:
                forget_steps(operations, [claim for claim in kept.claims if claim.steps is not None])
            if batch.awaited:
                note_left(operations.model, operations.alias, kept.claims)
                entered(operations.model, operations.alias, batch.to, accepted, wait=wait)
        return self._sort_out(batch, {*accepted, *self._found_written(batch, accepted)} if again else accepted)

    def record_noted(
        self, batch: OutcomeBatch, noted: Statement, values: Mapping[str, object], only: Statement | None = None
    ) -> Written | None:
        """Record outcomes and change the program's records of the claims, by ``done``, in one statement.

        Does so only while the leases last, and under the condition ``only``. If that is not so, or if it takes more
        statements, as it always does here, nothing is written and None returned.
        """
        return None

    def _found_written(self, batch: OutcomeBatch, accepted: Collection[Pk]) -> set[Pk]:
        """Return the refused rows that look as if their outcome had been written."""
        operations = self._operations
        refused = {claim.pk: (claim, outcome) for claim, outcome in batch.ended if claim.pk not in accepted}
        named = ("pk", "state", "state_version", "state_attempts", "state_claim")
        with operations.reading():
            found = operations.anywhere.filter(pk__in=list(refused)).values_list(*named)
            return {row[0] for row in found if is_written(*refused[row[0]], *row[1:])}

    def _recording(self, batch: OutcomeBatch) -> AbstractContextManager[object]:
        """Return the transaction that writes a batch."""
        return self._operations.transaction()

    def _write(self, batch: OutcomeBatch, *, last: bool = False) -> dict[Pk, float | None]:
        """Write outcomes and their statistics; return the primary keys of the accepted ones.

        For models with history, the values are the seconds that the rows had been in the state that they left.
        """
        operations = self._operations
        accepted, stays = dict[Pk, float | None](), list[Stay]()
        for (token, _), same in groupby(sorted(batch.ended, key=write_key), key=write_key):
            ended = list(same)
            fenced = operations.rows.filter(
                pk__in=[claim.pk for claim, _ in ended], state_claim=UUID(int=token), state=batch.source.name
            )
            mine = operations.lock(fenced.order_by("pk"), len(ended))
            if mine:
                rows = operations.rows.filter(pk__in=mine)
                accepted |= dict.fromkeys(mine)
                if batch.moved:
                    stays.append(self._about_to_leave(rows, accepted))
                outcome = ended[0][1]
                values = outcome.values or {} if self._saves_at_once(batch) else {}
                rows.update(**changes_of(operations.state_field, outcome, batch.source), **values)
        if not batch.released:
            self._count(batch, accepted, stays)
        return accepted

    def _count(self, batch: OutcomeBatch, accepted: Collection[Pk], stays: list[Stay]) -> None:
        """Write the statistics of the accepted outcomes."""
        operations = self._operations
        failed = sum(outcome.failure is not None for _, outcome in batch.only(accepted).ended)
        edge = (operations.alias, operations.label, batch.source.name, batch.to)
        Stats.add(*edge, shard=self.shard(), handled=len(accepted), failed=failed, stays=stays)

    def shard(self) -> int:
        """The statistics rows that the calling thread updates: threads that share one would wait for each other."""
        return int(self._operations.worker_id[:2], 16) + 256 * (threading.get_native_id() % 127)

    def _about_to_leave(self, rows: QuerySet[Model], accepted: dict[Pk, float | None]) -> Stay:
        """Return how long the rows have been in their state in total; for history, also note each in ``accepted``."""
        if not self._operations.options.history:
            return Stay.of(rows)
        each = {pk: seconds_of(stayed) for pk, stayed in rows.values_list("pk", columns.stayed())}
        accepted |= each
        return Stay(sum(each.values()), max(each.values(), default=0.0))

    def _saves_at_once(self, batch: OutcomeBatch) -> bool:
        """Return whether :meth:`_write` also writes the fields that the state ``saves``."""
        return len(batch.ended) == 1 and not batch.computed

    def _save(self, kept: OutcomeBatch) -> None:
        """Write the fields that the state ``saves``; the preceding write has locked the rows."""
        for claim, outcome in kept.ended:
            if values := outcome.values:
                self._operations.rows.filter(pk=claim.pk).update(**values)

    def _has_history(self, batch: OutcomeBatch) -> bool:
        """Return whether the history gets entries of a batch: of moves and errors, and of what was logged."""
        options = self._operations.options
        logs = options.logs and not batch.released and logged(batch.claims)
        return options.history and (batch.moved or batch.failed or logs)

    def _kept_with(self, batch: OutcomeBatch) -> bool:
        """Return whether :meth:`_write` writes the history of a batch."""
        return False

    def _keeps_attempts(self, batch: OutcomeBatch) -> bool:
        """Return whether :meth:`_write` writes the program's records of the attempts."""
        return False

    def _sort_out(self, batch: OutcomeBatch, accepted: Collection[Pk]) -> Written:
        written = batch.only(accepted).accepted()
        if len(accepted) < len(batch.ended):
            refused = [ended for ended in batch.ended if ended[0].pk not in accepted]
            still_mine = still_claimed(self._operations, [claim for claim, _ in refused])
            deferred = [ended for ended in refused if ended[0].pk in still_mine]
            written.lost = [claim for claim, _ in refused if claim.pk not in still_mine]
            here = self._operations.slice
            written.deferred = [ended for ended in deferred if ended[0].operations.slice == here]
            if moved := [ended for ended in deferred if ended[0].operations.slice != here]:
                return Written.total([written, self.record(moved)])
        return written

    def move_rows(
        self,
        rows: QuerySet[Model],
        source: str,
        to: State,
        limit: int,
        *,
        reason: str = "",
        changes: columns.Changes | None = None,
    ) -> Moves:
        """Move up to ``limit`` unclaimed rows without a handler, with history and statistics, in one transaction.

        ``changes``: the columns that change, unless the rows enter ``to`` as by any other move.
        """
        operations = self._operations
        wait = operations.connection.in_atomic_block
        try:
            with operations.transaction():
                changed = changes or columns.entering(operations.state_field, to, {source})
                count, pks = self._move(rows, source, to.name, limit, reason, changed)
                if source in operations.keeping:
                    lives = operations.rows.filter(pk__in=pks).values_list("pk", *OF_LIFE)
                    left = [Locked(pk, source, 0, *of_life) for pk, *of_life in lives]
                    note_left(operations.model, operations.alias, left)
                entered(operations.model, operations.alias, to.name, pks, wait=wait)
        except WaiterHeld as held:
            # Others would wait for these, and the next pass finds them again.
            return self.move_rows(rows.exclude(pk__in=held.pks), source, to, limit, reason=reason, changes=changes)
        return Moves(count, [Move(pk, source, to.name) for pk in pks])

    def _move(
        self, rows: QuerySet[Model], source: str, to: str, limit: int, reason: str, changes: columns.Changes
    ) -> tuple[int, list[Pk]]:
        """Move rows, and return their number and the keys of those that somebody may wait for."""
        operations = self._operations
        picked = operations.lock(rows, limit)
        found = operations.rows.filter(pk__in=picked)
        stays = [Stay.of(found)] if picked else []
        if picked and operations.options.history:
            of_row = {"version": F("state_version") + 1, "stay": Seconds(columns.stayed())}
            given = {"to": to, "reason": reason, "worker": operations.worker_id, "kind": History.Kind.MOVE.value}
            keep_entries(operations.model, operations.alias, picked, of_row, given)
        count = found.update(**changes) if picked else 0
        Stats.add(operations.alias, operations.label, source, to, shard=self.shard(), handled=count, stays=stays)
        return count, picked


def is_written(claim: Claim, outcome: Outcome, state: str, version: int, attempts: int, token: UUID | None) -> bool:
    """Return whether a row looks as this outcome would have left it; a moved row may have been claimed since."""
    if isinstance(outcome, Moved):
        return (state, version) == (outcome.to.name, claim.version + 1)
    counted = claim.attempt - (isinstance(outcome, Released) and not outcome.begun)
    return (state, version, attempts) == (claim.state.name, claim.version, counted) and token is None


def write_key(ended: Ended) -> tuple[int, tuple[float, bool]]:
    """Return a key; outcomes of one kind with equal keys are written by one ORM update."""
    claim, outcome = ended
    if isinstance(outcome, Waiting):
        return claim.token.int, (outcome.delay, outcome.failure is not None)
    return claim.token.int, (outcome.after if isinstance(outcome, Released) else 0.0, False)


def changes_of(field: StateField, outcome: Outcome, source: State) -> columns.Changes:
    """Return the columns that an outcome of an attempt in ``source`` changes."""
    if isinstance(outcome, Moved):
        return columns.entering(field, outcome.to, {source.name})
    if isinstance(outcome, Released):
        return columns.releasing(outcome.after, begun=outcome.begun)
    failures = F("state_failures") + 1 if outcome.failure else Value(0)
    return columns.staying(columns.after(outcome.delay), failures, woken=source.woken_by_events)
