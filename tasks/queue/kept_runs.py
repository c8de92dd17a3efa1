"""The runs of claims as effects of claims, heartbeats and outcomes.

Each has two forms: a text that continues the one statement on PostgreSQL, and statements of its own.
"""

from collections import defaultdict
from collections.abc import Hashable
from typing import NamedTuple, Self, cast
from uuid import UUID

from django.db.models import Model, OuterRef, QuerySet, Subquery

from stator.claims import Claim
from stator.db.effects import AFTER, Act, Done, Effect, Part, Store
from stator.db.saved_fields import is_saved_at_once, value_names
from stator.graph.failures import Failure
from stator.models import Now, column_of, field_of, name_of
from stator.statements import written
from tasks.queue import runs
from tasks.rows.runs import Run
from tasks.rows.tables import task_model

# The columns that runs have from tasks.
COLUMNS = ", ".join(column_of(field_of(Run, name)) for name in runs.COPIED)

# ``done`` are the claimed tasks.
CLAIMED = written(
    """,
noted AS (
  INSERT INTO tasks_run ({columns}, token, worker, lease, outcome, reason)
  SELECT {values}, state_claim, %(worker)s::text, %(lease)s::float8, '', ''
  FROM done WHERE state_claim IS NOT NULL)""",
    columns=COLUMNS,
    values=", ".join(runs.COPIED.values()),
)

# ``done`` is the task whose lease is renewed.
HELD = """,
noted AS (
  UPDATE tasks_run SET lease_until = done.state_locked_until{lease} FROM done
  WHERE tasks_run.task_id = done.pk AND tasks_run.token = done.state_claim)"""
HELD_AS_BEFORE = written(HELD, lease="")
HELD_FOR = written(HELD, lease=written(", lease = %(lease)s::float8"))

# ``done`` are the tasks whose claims have ended.
ENDED = """,
noted AS (
  UPDATE tasks_run SET ended = statement_timestamp(), outcome = %(run_outcome)s::text,
    reason = %(run_reason)s::text{result}{further}
  FROM done WHERE tasks_run.task_id = done.pk AND tasks_run.token = done.claim)"""
# What the history has of these ends, by whether they move the task, and whether they failed.
MOVED = """,
    attempt = done.run_attempt, "to" = %(to)s::text, stay = greatest(date_part('epoch', done.stayed), 0)"""
FAILED = """,
    attempt = done.run_attempt, error = %(run_error)s::text, fingerprint = %(run_fingerprint)s::text"""
TOLD_OF = {
    (False, False): "", (True, False): MOVED, (False, True): f"{FAILED}, \"to\" = ''",
    (True, True): f"{MOVED}{FAILED.replace('attempt = done.run_attempt, ', '')}",
}  # fmt: skip
ATTEMPT = "t.state_attempts AS run_attempt"
DELETED = """,
noted AS (DELETE FROM tasks_run USING done WHERE tasks_run.task_id = done.pk AND tasks_run.token = done.claim)"""

# The attempts of a worker process that have completed tasks.
COMPLETED = """,
noted AS (
  INSERT INTO tasks_run ({columns}, token, ended, result, worker, outcome, reason, attempt, duration, "to", stay)
  SELECT {values}, run_token, run_ended, run_result, %(run_worker)s::text, 'succeeded', '', run_attempt, run_duration,
    %(to)s::text, greatest(date_part('epoch', stayed), 0)
  FROM done)"""
DURATIONS = ", %(run_durations)s::float8[]"
BEFORE = {of: f"run_{name}" for name, of in runs.COPIED.items()} | {
    "state_claim": "run_token", "state_attempts": "run_attempt"
}  # fmt: skip
AFTERWARDS = {"state_changed": "run_ended", "result": "run_result"}


class Ending(NamedTuple):
    """What becomes of the runs of claims that a named worker ends: an ``outcome``, or without one they are deleted."""

    outcome: str
    reason: str = ""


# A claim that ends as if it had never been made leaves no run.
FORGOTTEN = Ending("")


class Ended(NamedTuple):
    """The key of a part that updates runs: ``moved`` or ``failed`` ends stand in the history."""

    outcome: str
    moved: bool
    failed: bool


class KeptRuns(Effect):
    """The runs of claims that end: named workers made them with the claims, worker processes make them now.

    They are the history of attempts, so they have what the history shows of moves and errors.
    """

    tells = True

    @classmethod
    def bind(cls, store: Store) -> Self | None:
        """Return it for tasks."""
        return cls(store) if store.operations.model is task_model() else None

    def wants(self, act: Act) -> Hashable:
        """Return the outcome of runs that are there; that of new runs, if they are copied from the tasks."""
        if self._operations.for_programs:
            if not act.note:
                return None
            if not self._inserts or len({id(outcome.failure) for outcome in act.outcomes}) > 1:
                return AFTER
            return Ended(act.note.outcome, act.moved, act.failed)
        if not act.begun:
            return None
        copied = self._inserts and act.moved and not act.failed and is_saved_at_once(act, self._compiler)
        return AFTER if not copied or any(claim.notes for claim in act.claims if claim.kept) else "completed"

    def part(self, act: Act, answer: Hashable) -> Part:
        """Return the UPDATE, the DELETE or the INSERT of the runs."""
        if answer == "completed":
            after = [f"tasks_task.{name} AS {called}" for name, called in AFTERWARDS.items()]
            return Part(
                arrays=DURATIONS,
                names=("run_duration",),
                passed=tuple(f"t.{name} AS {called}" for name, called in BEFORE.items()),
                returned=(*(f"v.{called}" for called in (*BEFORE.values(), "run_duration")), *after),
                after=written(COMPLETED, columns=COLUMNS, values=", ".join(f"run_{name}" for name in runs.COPIED)),
            )
        ended = cast("Ended", answer)
        if not ended.outcome:
            return Part(returned=("v.claim",), after=written(DELETED))
        values = value_names(act)
        result = f", result = done.{values[act.saves.index('result')]}" if ended.outcome == "succeeded" else ""
        fields = TOLD_OF[ended.moved, ended.failed]
        returned = ("v.claim", "v.run_attempt", *(f"v.{name}" for name in values))
        return Part(passed=(ATTEMPT,), returned=returned, after=written(ENDED, result=result, further=written(fields)))

    def values(self, act: Act, answer: Hashable, into: dict[str, object]) -> None:
        """Add the worker of new runs, or what is said of those that are there."""
        if act.note is None:
            into["run_worker"] = name_of(self._operations.worker_id, self._operations.alias)
            into["run_durations"] = [claim.duration for claim in act.claims]
            return
        into["run_outcome"], into["run_reason"] = act.note
        fields = runs.columns_of(act.outcomes[0].failure)
        into["run_error"], into["run_fingerprint"] = fields.get("error", ""), fields.get("fingerprint", "")

    def write(self, done: Done) -> None:
        """Write, change or delete the runs."""
        operations, note = self._operations, done.act.note
        if note is None:
            runs.recorded(operations.alias, list(done.act.ended), done.accepted)
            return
        tasks: QuerySet[Model] = operations.rows.filter(pk=OuterRef("task"))
        copied = {"result": Subquery(tasks.values("result")[:1])} if note.outcome == "succeeded" else {}
        every = operations.division.only_mine(QuerySet(Run, using=operations.alias))
        alike: dict[tuple[UUID, Failure | None], list[Claim]] = defaultdict(list)
        for claim, outcome in done.act.ended:
            alike[claim.token, outcome.failure].append(claim)
        for (token, failure), claims in alike.items():
            mine = every.filter(task__in=[claim.pk for claim in claims], token=token)
            if note.outcome:
                tells = done.act.moved or done.act.failed
                fields = {**self._further(done, claims), **runs.columns_of(failure)} if tells else {}
                mine.update(ended=Now(), outcome=note.outcome, reason=note.reason, **copied, **fields)
            else:
                mine.delete()

    def _further(self, done: Done, claims: list[Claim]) -> dict[str, object]:
        """Return what the history has of these ends, by column."""
        by_task = runs.differing(claims, done.accepted if done.act.moved else {})
        fields = {name: runs.of_tasks(name, values) for name, values in by_task.items()}
        return {**fields, "to": done.act.edge[1] if done.act.moved else ""}
