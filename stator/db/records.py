"""Records of outcomes, and moves without a handler, through the ORM: correct on every database.

Every write after a claim names the claim's token and the state of the row when it was claimed; a write that finds no
row means a lost lease.
"""

from collections.abc import Collection, Hashable
from contextlib import nullcontext
from functools import cached_property
from itertools import groupby
from uuid import UUID

from django.db.models import Model, QuerySet

from stator.db.effect_table import bound
from stator.db.effects import Act, Done, Effect, RecordPlan, RowsMove, Store
from stator.db.interface import Ended, Moves, Operations, OutcomeBatch, Written, batches_of
from stator.db.leases import still_claimed
from stator.db.outcome_columns import changes_of, found_written, write_key
from stator.db.values import Pk
from stator.graph import State
from stator.rows import columns
from stator.rows.followers import WaiterHeld, moved
from stator.rows.life import OF_LIFE
from stator.rows.locking import Locked
from stator.rows.stay import Stay
from stator.signals import Move

# The keys of written rows, each with the seconds that the row had been in the state that it left, if that is asked for.
Accepted = dict[Pk, float | None]


class Records:
    """Records of attempts on the rows of one model."""

    # Whether the statement that writes outcomes is a transaction by itself.
    _is_one_statement = False

    def __init__(self, store: Store) -> None:
        self._store = store
        self._operations: Operations = store.operations
        self._plans: dict[tuple[Hashable, ...], RecordPlan] = {}
        self._quiet_plans: dict[tuple[str, str], RecordPlan] = {}

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        """What outcomes and moves write beside the rows."""
        return bound(self._store)

    def _plan(self, act: Act) -> RecordPlan:
        """Return how the effects of an act are written."""
        if not act.quiet or self._may_be_picky:
            return self._planned(act)
        plan = self._quiet_plans.get(act.edge)
        if plan is None:
            plan = self._quiet_plans[act.edge] = self._planned(act)
        return plan

    @cached_property
    def _may_be_picky(self) -> bool:
        return any(effect.picky for effect in self.effects)

    def _planned(self, act: Act) -> RecordPlan:
        answers = tuple([effect.wants(act) for effect in self.effects])
        plan = self._plans.get(answers)
        if plan is None:
            plan = self._plans[answers] = RecordPlan.of(self.effects, answers)
        return plan

    def record(self, ended: list[Ended], *, last: bool = False, note: object = None) -> Written:
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
            written = Written()
            if others:
                written = self.record_batch(OutcomeBatch.of(others, batch.note), again=again, last=last)
            written.deferred += [ended for ended in batch.ended if ended[0].pk in later]
            return written

    def _record_batch(self, batch: OutcomeBatch, *, again: bool, last: bool) -> Written:
        plan = self._plan(batch)
        plan = plan.complete or plan
        # In the transaction of a handler, what it has written would be lost.
        wait = bool(plan.further) and self._operations.connection.in_atomic_block
        alone = self._is_one_statement and not plan.further
        with nullcontext() if alone else self._operations.transaction():
            accepted, together = self._write(batch, plan, last=last and not plan.further)
            if accepted and plan.further:
                done = Done(batch.only(accepted), accepted, together, wait)
                for effect in plan.further:
                    effect.write(done)
        if accepted and plan.later:
            done = Done(batch.only(accepted), accepted, together)
            for effect in plan.later:
                effect.note(done)
        recorded = found_written(self._operations, batch, accepted) if again else set[Pk]()
        return self._sort_out(batch, {*accepted, *recorded} if recorded else accepted)

    def record_at_once(self, batch: OutcomeBatch) -> Written | None:
        """Record outcomes of claims whose leases have not run out, all or none, in one statement.

        If that takes more statements, as it always does here, or one is refused, nothing is written and None returned.
        """
        return None

    def _write(self, batch: OutcomeBatch, plan: RecordPlan, *, last: bool) -> tuple[Accepted, list[Stay]]:
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
                    together.append(Stay.of(rows, accepted if plan.tells else None))
                changes = changes_of(operations.state_field, ended[0][1], batch.source)
                for part in parts:
                    changes |= part.changes or {}
                rows.update(**changes)
        return accepted, together

    def _sort_out(self, batch: OutcomeBatch, accepted: Collection[Pk]) -> Written:
        if len(accepted) == len(batch.ended):
            return batch.accepted()
        written = batch.only(accepted).accepted()
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
                left: list[Locked] = []
                if source in operations.exits:
                    lives = operations.rows.filter(pk__in=pks).values_list("pk", *OF_LIFE)
                    left = [Locked(pk, source, 0, *of_life) for pk, *of_life in lives]
                moved(operations.model, operations.alias, to.name, pks, left, wait=wait)
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
        moving = operations.rows.filter(pk__in=picked)
        together = [Stay.of(moving)]
        for effect in effects:
            effect.leaving(move, picked)
        count = moving.update(**changes)
        for effect in effects:
            effect.write(Done(move, dict.fromkeys(picked), together))
        return count, picked
