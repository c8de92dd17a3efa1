"""Runs: the records of claims. Named workers write them when they claim, worker processes when an attempt has ended.

One statement writes the runs of all tasks of a claim. Django's bulk_create would take ten times as long to build the
statement as the database takes to run it.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter
from types import MappingProxyType
from typing import Any, cast
from uuid import UUID

from django.db import connections
from django.db.models import Case, Model, OuterRef, QuerySet, Subquery, Value, When

from stator.claims import Claim
from stator.graph.failures import Failure, bounded
from stator.graph.outcomes import Moved, Outcome
from stator.models import Now, column_of, field_of, name_of, names_of, worker_of
from tasks.queue.task_parts import KIND
from tasks.rows.runs import Run
from tasks.rows.tables import run_rows, task_model
from tasks.rows.tasks import TaskRow

REASON_LENGTH = 8000

# The most attempts of a task that are told, the latest ones, and the most characters of the error of each.
LATEST, ERROR_LENGTH = 200, 2_000

# The columns of a run, each with the task's column that it is copied from.
COPIED = {
    "task": "id", "shard": "shard", "version": "state_version", "claimed": "state_attempted",
    "lease_until": "state_locked_until",
}  # fmt: skip
# The same of a run that ended with success, from the completed task.
COMPLETED = {"task": "id", "shard": "shard", "ended": "state_changed", "result": "result"}
SUCCEEDED = {"outcome": "succeeded", "reason": ""}

# Values of a column by task.
ByTask = Mapping[object, object]

# The time of an attempt, its worker, and its error.
Attempt = tuple[datetime, str, str]


def note(made: list[Claim], worker: str, lease: float | None, using: str) -> None:
    """Record the claims that one statement has just made. ``lease``: the lease in seconds that was asked for."""
    if made:
        given = {"worker": worker, "token": made[0].token, "lease": lease, "outcome": "", "reason": ""}
        _copy(made, COPIED, given, using)


def held(claim: Claim, lease: float | None, using: str) -> None:
    """Note the renewed lease of a claim; ``lease``: the lease in seconds that was asked for."""
    given = {} if lease is None else {"lease": lease}
    until = Subquery(claim.operations.rows.filter(pk=OuterRef("task")).values("state_locked_until")[:1])
    mine = claim.operations.division.only_mine(run_rows(using))
    mine.filter(task__in=[claim.pk], token=claim.token).update(**given, lease_until=until)


def recorded(using: str, ended: list[tuple[Claim, Outcome]], seconds_in_state: Mapping[object, float | None]) -> None:
    """Record the attempts of one worker process, in the transaction that writes their outcomes.

    ``seconds_in_state``: the seconds that each task had been in the state that it left.
    """
    worker = name_of(ended[0][0].operations.worker_id, using)
    done = [claim for claim, outcome in ended if _is_success(outcome)]
    entered = {claim.pk: outcome.to.name for claim, outcome in ended if isinstance(outcome, Moved)}

    def alike(claim: Claim) -> tuple[Any, ...]:
        notes = tuple(sorted(claim.notes.items()))
        return claim.token, claim.version, claim.deadline, notes, entered[claim.pk]

    for key, same in groupby(sorted(done, key=alike), key=alike):
        claims = list(same)
        given = {
            "worker": worker, "token": claims[0].token, "version": key[1], "claimed": claims[0].attempted,
            "lease_until": _lease_end(claims[0]), "to": key[-1], **SUCCEEDED, **claims[0].notes,
        }  # fmt: skip
        _copy(claims, COMPLETED, given, using, differing(claims, seconds_in_state))
    others = [_run(worker, *each, seconds_in_state) for each in ended if not _is_success(each[1])]
    if others:
        run_rows(using).bulk_create(others)


def differing(claims: Iterable[Claim], seconds_in_state: Mapping[object, float | None]) -> dict[str, ByTask]:
    """Return what the history has of these attempts beside what all of them have, by column; without what none has."""
    by_field: dict[str, ByTask] = {
        "attempt": {claim.pk: claim.attempt for claim in claims},
        "duration": {claim.pk: claim.duration for claim in claims},
        "stay": {claim.pk: seconds_in_state.get(claim.pk) for claim in claims},
    }
    return {name: by_task for name, by_task in by_field.items() if any(value is not None for value in by_task.values())}


def columns_of(failure: Failure | None) -> dict[str, str]:
    """Return what the history has of an error, by column."""
    return {"error": f"{failure.kind}: {failure.message}", "fingerprint": failure.fingerprint} if failure else {}


def of_tasks(column: str, values: ByTask) -> Case:
    """Return an expression over runs with the value of each task."""
    whens = [When(task=pk, then=Value(value)) for pk, value in values.items()]
    return Case(*whens, output_field=field_of(Run, column))


def keep(rows: QuerySet[Model], failure: Failure | None = None, **ended: object) -> None:
    """Record claims before other code ends them: those of worker processes, which have no run yet.

    ``ended``: how they end, if that is known. ``failure``: the error that the history is to have of them, also of the
    runs of named workers, which stay open.
    """
    using = str(rows.db)
    columns = "state_version", "state_claim", "state_attempted", "state_locked_until", "state_attempts"
    lost = list(rows.values_list("pk", "shard", *columns))
    named = holders({pk: token for pk, _, _, token, *_ in lost}, using)
    names = names_of({worker_of(token) for pk, _, _, token, *_ in lost if pk not in named}, using)
    fields = {"to": "", **columns_of(failure)} if failure else {}
    attempts = {pk: attempt for pk, *_, attempt in lost}
    if failure and named:
        mine = {pk: token for pk, _, _, token, *_ in lost if pk in named}
        open_runs = run_rows(using).filter(task__in=list(mine), token__in=set(mine.values()), ended=None)
        open_runs.update(attempt=of_tasks("attempt", {pk: attempts[pk] for pk in mine}), **fields)
    runs = [
        Run(
            task_id=pk,
            shard=shard,
            version=version,
            worker=names[worker_of(token)],
            token=token,
            claimed=at,
            lease_until=until,
            attempt=attempt if failure else None,
            **fields,
            **ended,
        )
        for pk, shard, version, token, at, until, attempt in lost
        if pk not in named
    ]
    run_rows(using).bulk_create(runs, ignore_conflicts=True)


def holders(tokens: Mapping[int, UUID], using: str | None) -> dict[int, str]:
    """Return the named workers that hold these claims, by task; worker processes are left out."""
    return of_claims(tokens, using, "worker")


def of_claims(tokens: Mapping[int, UUID], using: str | None, column: str, **conditions: object) -> dict[int, Any]:
    """Return a column of the runs of claims by task, given their tokens by task."""
    if not tokens:
        return {}
    own = run_rows(using).filter(task__in=list(tokens), token__in=set(tokens.values()), **conditions)
    # All tasks of one claim statement share a token, and a task has a run for each of its claims.
    return {pk: value for pk, token, value in own.values_list("task", "token", column) if tokens[pk] == token}


def of_task(task: TaskRow) -> QuerySet[Run]:
    """Return the runs of a task, or of its parts."""
    return run_rows(task._state.db).filter(KIND.parts.of_run(task))


def attempts_of(task: TaskRow) -> list[Attempt]:
    """Return the attempts of a task, or of its parts, since it was published or requeued, the first one first.

    The error of an attempt that succeeded or still runs is empty.
    """
    visits = of_task(task).filter(task=OuterRef("task")).order_by("-version").filter(version__gte=0)
    latest = of_task(task).filter(version=Subquery(visits.values("version")[:1])).select_related("task")
    attempts = [(run.claimed, run.worker, _failure_of(run)) for run in latest.order_by("-pk")[:LATEST]]
    return sorted(attempts, key=itemgetter(0))


def _failure_of(run: Run) -> str:
    if run.outcome in ("succeeded", "waited"):
        return ""
    if run.ended is None:
        return "" if run.task.state_claim == run.token else "its lease ran out"
    return run.reason or f"{run.outcome} without a reason"


def errors_in(attempts: list[Attempt]) -> list[str]:
    """Return the errors of attempts, as ``worker: message``."""
    return [f"{worker}: {bounded(error, ERROR_LENGTH)}" for _, worker, error in attempts if error]


def _copy(
    claims: list[Claim], copied: dict[str, str], given: dict[str, object], using: str,
    own_values: Mapping[str, ByTask] = MappingProxyType({}),
) -> None:  # fmt: skip
    """Insert a run for each task, with some columns copied from its row; ``own_values``: columns by task."""
    connection, task = connections[using], task_model()
    places: list[Any] = [claim.pk for claim in claims]
    quote = connection.ops.quote_name
    key = quote(column_of(field_of(task, "id")))
    names = ", ".join(quote(column_of(field_of(Run, name))) for name in (*copied, *given, *own_values))
    selected = [quote(column_of(field_of(task, name))) for name in copied.values()] + ["%s"] * len(given)
    values = [field_of(Run, name).get_db_prep_save(value, connection) for name, value in given.items()]
    for by_task in own_values.values():
        # Numbers, and null.
        selected.append(f"CASE {key}{' WHEN %s THEN %s' * len(by_task)} END")
        values += [each for pair in by_task.items() for each in pair]
    conditions = [f"{key} IN ({', '.join(['%s'] * len(places))})"]
    # A slice, if there are any, is on one node.
    if (part := claims[0].operations.part) is not None:
        conditions.append(f"{quote(column_of(field_of(task, 'shard')))} = %s")
        places.append(part)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {quote(Run._meta.db_table)} ({names})"  # noqa: S608 - names
            f" SELECT {', '.join(selected)} FROM {quote(task._meta.db_table)}"
            f" WHERE {' AND '.join(conditions)}",
            [*values, *places],
        )


def _run(worker: str, claim: Claim, outcome: Outcome, seconds_in_state: Mapping[object, float | None]) -> Run:
    failure, pk = outcome.failure, cast("int", claim.pk)
    reason = (failure.traceback or f"{failure.kind}: {failure.message}") if failure else outcome.reason
    came = {"outcome": "failed" if failure else "waited", "reason": bounded(reason, REASON_LENGTH), **claim.notes}
    fields = {}
    if failure:
        entered: dict[str, object] = {"to": ""}
        if isinstance(outcome, Moved):
            entered = {"to": outcome.to.name, "stay": seconds_in_state.get(pk)}
        fields = {"attempt": claim.attempt, "duration": claim.duration, **entered, **columns_of(failure)}
    # The instance of a claim whose outcome is written again may be gone.
    shard = claim.operations.part or getattr(claim.instance, "shard", 0)
    return Run(
        task_id=pk, shard=shard, version=claim.version, worker=worker, token=claim.token, claimed=claim.attempted,
        lease_until=_lease_end(claim), ended=Now(), **came, **fields,
    )  # fmt: skip


def _is_success(outcome: Outcome) -> bool:
    return outcome.failure is None and isinstance(outcome, Moved)


def _lease_end(claim: Claim) -> datetime:
    """Return when the lease would have run out; the worker's deadline is a fifth of a lease before."""
    return claim.attempted + timedelta(seconds=claim.deadline - claim.claimed + 0.2 * claim.lease)
