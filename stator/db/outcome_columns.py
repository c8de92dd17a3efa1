"""The columns of a row that an outcome changes: by the ORM, and in a statement with arrays of values."""

from collections.abc import Collection
from uuid import UUID

from django.db.models import BooleanField, DurationField, F, Value
from django.db.models.expressions import RawSQL
from django.db.models.functions import Coalesce

from stator.db.interface import Claim, Ended, Operations, OutcomeBatch
from stator.db.values import Pk
from stator.graph import State
from stator.graph.outcomes import Moved, Outcome, Released, Waiting
from stator.rows import columns
from stator.rows.clock import Now
from stator.rows.state_column import StateField


def changes_of(field: StateField, outcome: Outcome, source: State) -> columns.Changes:
    """Return the columns that an outcome of an attempt in ``source`` changes."""
    if isinstance(outcome, Moved):
        return columns.entering(field, outcome.to, {source.name})
    if isinstance(outcome, Released):
        return columns.releasing(outcome.after, begun=outcome.begun)
    failures = F("state_failures") + 1 if outcome.failure else Value(0)
    return columns.staying(columns.after(outcome.delay), failures, woken=source.may_be_woken)


def write_key(ended: Ended) -> tuple[int, tuple[float, bool]]:
    """Return a key; outcomes of one kind with equal keys are written by one ORM update."""
    claim, outcome = ended
    if isinstance(outcome, Waiting):
        return claim.token.int, (outcome.delay, outcome.failure is not None)
    return claim.token.int, (outcome.after if isinstance(outcome, Released) else 0.0, False)


def changes_by_arrays(field: StateField, outcome: Outcome, source: State) -> columns.Changes:
    """Return these columns for a statement that has the delays and failures of its rows as ``v``."""
    if isinstance(outcome, Moved):
        return columns.entering(field, outcome.to, {source.name})
    delay = RawSQL("v.delay * interval '1 second'", [], output_field=DurationField())
    if isinstance(outcome, Released):
        # One statement for rows that are ready again, whose delay is null, and rows that are due later.
        due = Coalesce(Now() + delay, F("state_next_attempt"))
        ready = RawSQL("v.delay IS NULL", [], output_field=BooleanField())
        return {**columns.releasing(begun=outcome.begun), "state_ready": ready, "state_next_attempt": due}
    failures = RawSQL("CASE WHEN v.failed THEN state_failures + 1 ELSE 0 END", [])
    return columns.staying(Now() + delay, failures, woken=source.may_be_woken)


def delays_of(batch: OutcomeBatch) -> list[float | None]:
    """Return after how many seconds rows that stay are due; null for released ones that are ready, none if all are."""
    if not batch.released:
        return [float(each.delay) for _, each in batch.ended if isinstance(each, Waiting)]
    delays = [each.after or None for _, each in batch.ended if isinstance(each, Released)]
    return delays if any(delays) else []


def found_written(operations: Operations, batch: OutcomeBatch, accepted: Collection[Pk]) -> set[Pk]:
    """Return the refused rows that look as if their outcome had been written."""
    refused = {claim.pk: (claim, outcome) for claim, outcome in batch.ended if claim.pk not in accepted}
    named = ("pk", operations.state_field.name, "state_version", "state_attempts", "state_claim")
    with operations.reading():
        rows = operations.division.anywhere.filter(pk__in=list(refused)).values_list(*named)
        return {row[0] for row in rows if is_written(*refused[row[0]], *row[1:])}


def is_written(claim: Claim, outcome: Outcome, state: object, version: int, attempts: int, token: UUID | None) -> bool:
    """Return whether a row looks as this outcome would have left it; a moved row may have been claimed since."""
    if isinstance(outcome, Moved):
        return (state, version) == (outcome.to.value, claim.version + 1)
    counted = claim.attempt - (isinstance(outcome, Released) and not outcome.begun)
    return (state, version, attempts) == (claim.state.value, claim.version, counted) and token is None
