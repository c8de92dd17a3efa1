"""Claims that named workers hold: found by their tokens, and ended many at a time."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from stator import claims
from stator.exceptions import LeaseLost
from tasks.conf import load_settings
from tasks.messages import check_json, is_same_json
from tasks.queue import runs
from tasks.queue.claiming import TaskClaim
from tasks.rows.queues import QueueRow
from tasks.rows.runs import Run
from tasks.rows.tables import run_rows
from tasks.rows.tasks import TaskRow
from tasks.sharding import shards


def find(model: type[TaskRow], pk: int, token: UUID, *, using: str | None = None) -> TaskClaim:
    """Return the claim of a named worker with this token; raise ``LeaseLost`` if it has ended or never existed."""
    held = claims.find(model, pk, token, using=using)
    run = held.instance.runs.filter(token=token).first()
    return _named(held, run and run.worker)


def of_row(task: TaskRow, token: UUID, worker: str | None) -> TaskClaim:
    """Return the claim of a task that was just read, and of its holder's name ``worker``; raise like :func:`find`."""
    return _named(claims.of_instance(task, token), worker)


def _named(held: claims.Claim, worker: str | None) -> TaskClaim:
    if worker is None:
        raise LeaseLost(f"task {held.pk} is held by a worker process, and not by a worker with a name")
    return TaskClaim(held, worker)


def find_many(queue: QueueRow, tokens: Mapping[int, UUID]) -> list[TaskClaim]:
    """Return the claims in a queue with these tokens, given by task number. Claims that have ended are left out."""
    found = []
    for copy in shards.copies(queue):
        model, using = copy.tasks.model, str(copy._state.db)
        held = [each for each in claims.find_many(model, tokens, using=using) if each.instance.queue_id == copy.pk]
        workers = _workers(using, held)
        found += [TaskClaim(each, workers[each.pk]) for each in held if each.pk in workers]
    return found


def _workers(using: str, held: list[claims.Claim]) -> dict[Any, str]:
    """Return the named workers that hold these claims, by task; worker processes have no names."""
    runs = run_rows(using)
    tokens = {each.pk: each.token for each in held}
    mine = runs.filter(task__in=list(tokens), token__in=set(tokens.values()))
    return {pk: worker for pk, token, worker in mine.values_list("task", "token", "worker") if tokens[pk] == token}


def were_resolved(queue: QueueRow, ends: Mapping[int, tuple[UUID, Any]]) -> set[int]:
    """Return the tasks that these claims completed with these results, for a holder that repeats its request."""
    done = _ended_runs(queue, {pk: token for pk, (token, _) in ends.items()}, "succeeded")
    return {run.task_id for run in done if is_same_json(ends[run.task_id][1], run.result)}


def were_failed(queue: QueueRow, tokens: Mapping[int, UUID]) -> set[int]:
    """Return the tasks whose claims with these tokens ended as failed, for a holder that repeats its request."""
    return {run.task_id for run in _ended_runs(queue, tokens, "failed")}


def _ended_runs(queue: QueueRow, tokens: Mapping[int, UUID], outcome: str) -> list[Run]:
    """Return the runs of claims in a queue with these tokens, by task number, that ended with this outcome."""
    found: list[Run] = []
    for copy in shards.copies(queue) if tokens else ():
        runs = run_rows(copy._state.db)
        mine = runs.filter(task__queue=copy.pk, task__in=list(tokens), token__in=set(tokens.values()), outcome=outcome)
        found += [run for run in mine if tokens[run.task_id] == run.token]
    return found


def resolve_many(results: Mapping[TaskClaim, Any]) -> list[TaskClaim]:
    """Complete the tasks of claims, each with its result; return the claims that were lost."""
    settings = load_settings()
    ends: dict[str, list[tuple[claims.Claim, claims.Outcome]]] = defaultdict(list)
    for held, result in results.items():
        check_json("result", result, settings.PAYLOAD_LIMIT, settings.PAYLOAD_DEPTH)
        ends[held._using].append((held._claim, claims.moved(held._claim, "completed", {"result": result})))
    lost: set[claims.Claim] = set()
    for each in ends.values():
        written = claims.end(each, runs.ended("succeeded"))
        lost.update(written.lost if written else ())
    for held in results:
        held._is_lost = held._claim in lost
        held.ended = not held._is_lost
    return [held for held in results if held._is_lost]


def fail_many(errors: Mapping[TaskClaim, BaseException | str]) -> list[TaskClaim]:
    """End claims without success, each with its error; return the claims that were lost.

    Each claim is a transaction of its own: its task waits again, or is errored if it has no attempts left.
    """
    lost = []
    for held, error in errors.items():
        try:
            held.fail(error)
        except LeaseLost:
            lost.append(held)
    return lost


def was_ended(pk: int, token: UUID, outcome: str, *, using: str | None) -> bool:
    """Return whether the claim ended with this outcome: its holder has lost the answer and repeats the request."""
    runs = run_rows(using)
    return runs.filter(task=pk, token=token, outcome=outcome).exists()
