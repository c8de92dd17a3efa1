"""Runs: the records of claims. Named workers write them when they claim, worker processes when an attempt has ended.

One statement writes the runs of all tasks of a claim. Django's bulk_create would take ten times as long to build the
statement as the database takes to run it.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any, cast
from uuid import UUID

from django.db import connections
from django.db.models import OuterRef, QuerySet, Subquery

from stator.claims import Claim
from stator.graph.failures import bounded
from stator.graph.outcomes import Moved, Outcome
from stator.models import Now, column_of, field_of, name_of, names_of, worker_of
from tasks.rows.runs import Run
from tasks.rows.tables import run_rows, task_model
from tasks.rows.tasks import TaskRow

REASON_LENGTH = 8000

# The columns of a run, each with the task's column that it is copied from.
COPIED = {
    "task": "id", "shard": "shard", "version": "state_version", "claimed": "state_attempted",
    "lease_until": "state_locked_until",
}  # fmt: skip
# The same of a run that ended with success, from the completed task.
COMPLETED = {"task": "id", "shard": "shard", "ended": "state_changed", "result": "result"}
SUCCEEDED = {"outcome": "succeeded", "reason": ""}


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


def recorded(using: str, ended: list[tuple[Claim, Outcome]]) -> None:
    """Record the attempts of one worker process, in the transaction that writes their outcomes."""
    worker = name_of(ended[0][0].operations.worker_id, using)
    done = [claim for claim, outcome in ended if _is_success(outcome)]
    for key, same in groupby(sorted(done, key=_alike), key=_alike):
        claims = list(same)
        given = {
            "worker": worker, "token": claims[0].token, "version": key[1], "claimed": claims[0].attempted,
            "lease_until": _lease_end(claims[0]), **SUCCEEDED, **claims[0].notes,
        }  # fmt: skip
        _copy(claims, COMPLETED, given, using)
    others = [_run(worker, *each) for each in ended if not _is_success(each[1])]
    if others:
        run_rows(using).bulk_create(others)


def keep(rows: QuerySet[Any], **ended: Any) -> None:
    """Record claims of worker processes before other code ends them; named workers recorded theirs when they claimed.

    ``ended``: how they end, if that is known.
    """
    using = str(rows.db)
    columns = "state_version", "state_claim", "state_attempted", "state_locked_until"
    lost = list(rows.values_list("pk", "shard", *columns))
    names = names_of({worker_of(token) for _, _, _, token, _, _ in lost}, using)
    runs = [
        Run(
            task_id=pk,
            shard=shard,
            version=version,
            worker=names[worker_of(token)],
            token=token,
            claimed=at,
            lease_until=until,
            **ended,
        )
        for pk, shard, version, token, at, until in lost
    ]
    run_rows(using).bulk_create(runs, ignore_conflicts=True)


def holders(tokens: Mapping[int, UUID], using: str | None) -> dict[int, str]:
    """Return the named workers that hold these claims, by task; worker processes are left out."""
    return of_claims(tokens, using, "worker")


def of_claims(tokens: Mapping[int, UUID], using: str | None, column: str, **conditions: object) -> dict[int, Any]:
    """Return a column of the runs of claims by task, given their tokens by task."""
    if not tokens:
        return {}
    found = run_rows(using).filter(task__in=list(tokens), token__in=set(tokens.values()), **conditions)
    # All tasks of one claim statement share a token, and a task has a run for each of its claims.
    return {pk: value for pk, token, value in found.values_list("task", "token", column) if tokens[pk] == token}


def of_task(task: TaskRow) -> QuerySet[Run]:
    """Return the runs of a task, or of the parts of a shared one."""
    every = run_rows(task._state.db)
    return every.filter(task__whole=task.pk) if task.worker_count > 1 else every.filter(task=task.pk)


def _copy(claims: list[Claim], copied: dict[str, str], given: dict[str, object], using: str) -> None:
    """Insert a run for each task, with some columns copied from its row."""
    connection, task = connections[using], task_model()
    places: list[Any] = [claim.pk for claim in claims]
    quote = connection.ops.quote_name
    own = [field_of(Run, name) for name in given]
    names = ", ".join(quote(column_of(field)) for field in (*(field_of(Run, name) for name in copied), *own))
    columns = ", ".join(quote(column_of(field_of(task, name))) for name in copied.values())
    values = [field.get_db_prep_save(value, connection) for field, value in zip(own, given.values(), strict=True)]
    conditions = [f"{quote(column_of(field_of(task, 'id')))} IN ({', '.join(['%s'] * len(places))})"]
    # A slice, if there are any, is on one node.
    if (part := claims[0].operations.part) is not None:
        conditions.append(f"{quote(column_of(field_of(task, 'shard')))} = %s")
        places.append(part)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {quote(Run._meta.db_table)} ({names})"  # noqa: S608 - names
            f" SELECT {columns}{', %s' * len(given)} FROM {quote(task._meta.db_table)}"
            f" WHERE {' AND '.join(conditions)}",
            [*values, *places],
        )


def _run(worker: str, claim: Claim, outcome: Outcome) -> Run:
    failure, pk = outcome.failure, cast("int", claim.pk)
    reason = (failure.traceback or f"{failure.kind}: {failure.message}") if failure else outcome.reason
    came = {"outcome": "failed" if failure else "waited", "reason": bounded(reason, REASON_LENGTH), **claim.notes}
    # The instance of a claim whose outcome is written again may be gone.
    shard = claim.operations.part or getattr(claim.instance, "shard", 0)
    return Run(
        task_id=pk, shard=shard, version=claim.version, worker=worker, token=claim.token, claimed=claim.attempted,
        lease_until=_lease_end(claim), ended=Now(), **came,
    )  # fmt: skip


def _is_success(outcome: Outcome) -> bool:
    return outcome.failure is None and isinstance(outcome, Moved)


def _alike(claim: Claim) -> tuple[UUID, int, float, tuple[tuple[str, Any], ...]]:
    return claim.token, claim.version, claim.deadline, tuple(sorted(claim.notes.items()))


def _lease_end(claim: Claim) -> datetime:
    """Return when the lease would have run out; the worker's deadline is a fifth of a lease before."""
    return claim.attempted + timedelta(seconds=claim.deadline - claim.claimed + 0.2 * claim.lease)
