"""The runs of claims as effects of claims, heartbeats and outcomes.

Each has two forms: a text that continues the one statement on PostgreSQL, and statements of its own.
"""

from collections.abc import Hashable
from typing import NamedTuple, Self

from django.db.models import OuterRef, QuerySet, Subquery

from stator.db.effects import AFTER, Act, Done, Effect, Part, Store
from stator.db.saved_fields import is_saved_at_once, value_names
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
    reason = %(run_reason)s::text{result}
  FROM done WHERE tasks_run.task_id = done.pk AND tasks_run.token = done.claim)"""
DELETED = """,
noted AS (DELETE FROM tasks_run USING done WHERE tasks_run.task_id = done.pk AND tasks_run.token = done.claim)"""

# The attempts of a worker process that have completed tasks.
COMPLETED = """,
noted AS (
  INSERT INTO tasks_run ({columns}, token, ended, result, worker, outcome, reason)
  SELECT {values}, run_token, run_ended, run_result, %(run_worker)s::text, 'succeeded', ''
  FROM done)"""
BEFORE = {of: f"run_{name}" for name, of in runs.COPIED.items()} | {"state_claim": "run_token"}
AFTERWARDS = {"state_changed": "run_ended", "result": "run_result"}


class Ending(NamedTuple):
    """What becomes of the runs of claims that a named worker ends: an ``outcome``, or without one they are deleted."""

    outcome: str
    reason: str = ""


# A claim that ends as if it had never been made leaves no run.
FORGOTTEN = Ending("")


class KeptRuns(Effect):
    """The runs of claims that end: named workers made them with the claims, worker processes make them now."""

    @classmethod
    def bind(cls, store: Store) -> Self | None:
        """Return it for tasks."""
        return cls(store) if store.operations.model is task_model() else None

    def wants(self, act: Act) -> Hashable:
        """Return the outcome of runs that are there; that of new runs, if they are copied from the tasks."""
        if self._operations.for_programs:
            return act.note and (act.note.outcome if self._inserts else AFTER)
        if not act.begun:
            return None
        copied = self._inserts and act.moved and not act.failed and is_saved_at_once(act, self._compiler)
        return AFTER if not copied or any(claim.notes for claim in act.claims if claim.kept) else "completed"

    def part(self, act: Act, answer: Hashable) -> Part:
        """Return the UPDATE, the DELETE or the INSERT of the runs."""
        if answer == "completed":
            after = [f"tasks_task.{name} AS {called}" for name, called in AFTERWARDS.items()]
            return Part(
                passed=tuple(f"t.{name} AS {called}" for name, called in BEFORE.items()),
                returned=(*(f"v.{called}" for called in BEFORE.values()), *after),
                after=written(COMPLETED, columns=COLUMNS, values=", ".join(f"run_{name}" for name in runs.COPIED)),
            )
        if not answer:
            return Part(returned=("v.claim",), after=written(DELETED))
        values = value_names(act)
        result = f", result = done.{values[act.saves.index('result')]}" if answer == "succeeded" else ""
        returned = ("v.claim", *(f"v.{name}" for name in values))
        return Part(returned=returned, after=written(ENDED, result=result))

    def values(self, act: Act, answer: Hashable, into: dict[str, object]) -> None:
        """Add the worker of new runs, or what is said of those that are there."""
        if act.note is None:
            into["run_worker"] = name_of(self._operations.worker_id, self._operations.alias)
        else:
            into["run_outcome"], into["run_reason"] = act.note

    def write(self, done: Done) -> None:
        """Write, change or delete the runs."""
        operations, note = self._operations, done.act.note
        if note is None:
            runs.recorded(operations.alias, list(done.act.ended))
            return
        tasks = operations.rows.filter(pk=OuterRef("task"))
        copied = {"result": Subquery(tasks.values("result")[:1])} if note.outcome == "succeeded" else {}
        every = operations.division.only_mine(QuerySet(Run, using=operations.alias))
        for token in {claim.token for claim in done.act.claims}:
            pks = [claim.pk for claim in done.act.claims if claim.token == token]
            mine = every.filter(task__in=pks, token=token)
            if note.outcome:
                mine.update(ended=Now(), outcome=note.outcome, reason=note.reason, **copied)
            else:
                mine.delete()
