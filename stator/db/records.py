"""Records of outcomes, and moves without a handler, through the ORM: correct on every database.

Every write after a claim names the claim's token and the state of the row when it was claimed; a write that finds no
row means a lost lease.
"""

from collections.abc import Collection, Hashable
from contextlib import AbstractContextManager
from functools import cached_property
from itertools import groupby
from typing import Any
from uuid import UUID

from django.db.models import Model, Q, QuerySet

from stator.db.effect_table import bound
from stator.db.effects import Act, Done, Effect, Plan, RowsMove, Store
from stator.db.interface import Ended, Moves, Operations, OutcomeBatch, Written, batches_of
from stator.db.leases import still_claimed
from stator.db.outcome_columns import changes_of, is_written, write_key
from stator.db.values import Pk
from stator.graph import State
from stator.graph.durations import seconds_of
from stator.rows import columns
from stator.rows.life import OF_LIFE
from stator.rows.locking import Locked
from stator.rows.stay import Stay
from stator.rows.transitions import entered, note_left
from stator.rows.watches import WaiterHeld
from stator.signals import Move

# The keys of written rows, each with the seconds that the row had been in the state that it left, if that is asked for.
Accepted = dict[Pk, float | None]


class Records:
    """Records of attempts on the rows of one model."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        """What outcomes and moves write beside the rows."""
        return bound(Store(self._operations))

    @cached_property
    def _plans(self) -> dict[tuple[Hashable, ...], Plan]:
        return {}

    def _plan(self, act: Act) -> Plan:
        """Return how the effects of an act are written."""
        answers = tuple([effect.wants(act) for effect in self.effects])
        plan = self._plans.get(answers)
        if plan is None:
            plan = self._plans[answers] = Plan.of(self.effects, answers)
        return plan

    def record(self, ended: list[Ended], *, last: bool = False, note: Any = None) -> Written:
        """Record outcomes of valid claims, with reports and statistics, in one transaction for each kind.

        ``last``: the transaction has nothing else to do, so the last statement may commit it. ``note``: see
        ``OutcomeBatch``.
        """
        batches = batches_of(ended, note=note)
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
            written = (
                self.record_batch(OutcomeBatch.of(others, batch.note), again=again, last=last) if others else Written()
            )
            written.deferred += [ended for ended in batch.ended if ended[0].pk in later]
            return written

    def _record_batch(self, batch: OutcomeBatch, *, again: bool, last: bool) -> Written:
        plan = self._plan(batch)
        plan = plan.complete or plan
        # In the transaction of a handler, what it has written would be lost.
        wait = self._operations.connection.in_atomic_block
        with self._recording(plan):
            accepted, together = self._write(batch, plan, last=last and not plan.further)
            if accepted and plan.further:
                done = Done(batch.only(accepted), accepted, together, wait)
                for effect in plan.further:
                    effect.write(done)
        return self._sort_out(batch, {*accepted, *self._found_written(batch, accepted)} if again else accepted)

    def record_at_once(self, batch: OutcomeBatch, where: Q | None) -> Written | None:
        """Record outcomes of claims whose leases have not run out, all or none, in one statement.

        ``where``: a condition of the row, of a single claim. If that takes more statements, as it always does here, or
        an outcome is refused, nothing is written and None returned.
        """
        return None

    def _found_written(self, batch: OutcomeBatch, accepted: Collection[Pk]) -> set[Pk]:
        """Return the refused rows that look as if their outcome had been written."""
        operations = self._operations
        refused = {claim.pk: (claim, outcome) for claim, outcome in batch.ended if claim.pk not in accepted}
        named = ("pk", operations.state_field.name, "state_version", "state_attempts", "state_claim")
        with operations.reading():
            found = operations.division.anywhere.filter(pk__in=list(refused)).values_list(*named)
            return {row[0] for row in found if is_written(*refused[row[0]], *row[1:])}

    def _recording(self, plan: Plan) -> AbstractContextManager[object]:
        """Return the transaction that writes a batch and its effects."""
        return self._operations.transaction()

    def _write(self, batch: OutcomeBatch, plan: Plan, *, last: bool) -> tuple[Accepted, list[Stay]]:
        """Write outcomes; return the accepted ones, and how long their rows had been in the state that they left.

        ``last``: this statement may commit the transaction.
        """
        operations, accepted, together = self._operations, Accepted(), list[Stay]()
        parts = plan.parts(batch)
        for (token, _), same in groupby(sorted(batch.ended, key=write_key), key=write_key):
            ended = list(same)
            pks, own = [claim.pk for claim, _ in ended], operations.state_field.at(batch.source)
            fenced = operations.rows.filter(pk__in=pks, state_claim=UUID(int=token), **own)
            mine = operations.lock(fenced.order_by("pk"), len(ended))
            if mine:
                rows = operations.rows.filter(pk__in=mine)
                accepted |= dict.fromkeys(mine)
                if batch.moved:
                    together.append(_about_to_leave(rows, accepted if plan.tells else None))
                changes = changes_of(operations.state_field, ended[0][1], batch.source)
                for part in parts:
                    changes |= part.changes or {}
                rows.update(**changes)
        return accepted, together

    def _sort_out(self, batch: OutcomeBatch, accepted: Collection[Pk]) -> Written:
        written = batch.only(accepted).accepted()
        if len(accepted) < len(batch.ended):
            refused = [ended for ended in batch.ended if ended[0].pk not in accepted]
            still_mine = still_claimed(self._operations, [claim for claim, _ in refused])
            deferred = [ended for ended in refused if ended[0].pk in still_mine]
            written.lost = [claim for claim, _ in refused if claim.pk not in still_mine]
            here = self._operations.part
            written.deferred = [ended for ended in deferred if ended[0].operations.part == here]
            if moved := [ended for ended in deferred if ended[0].operations.part != here]:
                return Written.total([written, self.record(moved, note=batch.note)])
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
                move = RowsMove((source, to.name), reason)
                changed = changes or columns.entering(operations.state_field, to, {source})
                count, pks = self._move(move, rows, limit, changed)
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
        self, move: RowsMove, rows: QuerySet[Model], limit: int, changes: columns.Changes
    ) -> tuple[int, list[Pk]]:
        """Move rows, and return their number and the keys of those that somebody may wait for."""
        operations = self._operations
        picked = operations.lock(rows, limit)
        if not picked:
            return 0, []
        plan = self._plan(move)
        effects = *(effect for effect, _ in plan.together), *plan.further
        found = operations.rows.filter(pk__in=picked)
        together = [Stay.of(found)]
        for effect in effects:
            effect.leaving(move, picked)
        count = found.update(**changes)
        for effect in effects:
            effect.write(Done(move, dict.fromkeys(picked), together))
        return count, picked


def _about_to_leave(rows: QuerySet[Model], each: Accepted | None) -> Stay:
    """Return how long rows have been in their state, all together; also note it for ``each``."""
    if each is None:
        return Stay.of(rows)
    found = {pk: seconds_of(stayed) for pk, stayed in rows.values_list("pk", columns.stayed())}
    each |= found
    return Stay.of_each(found.values())
