"""Claiming tasks, and what the holder of a claim does with it.

A claim is ended by its own token alone, and by a consumer that may claim from the queue of the task.
"""

from collections.abc import Callable, Sized

from django.db.models.functions import Now
from ninja import Router

from tasks.api.access import CLAIM, ApiRequest, queue_of, still_usable, task_of
from tasks.api.documents import refusals
from tasks.api.errors import Invalid
from tasks.api.schemas import (
    ClaimIn,
    ClaimsOut,
    EndedManyOut,
    EndedOut,
    FailIn,
    FailManyIn,
    HeartbeatIn,
    HeldIn,
    HeldOut,
    ReasonIn,
    ResolveIn,
    ResolveManyIn,
)
from tasks.api.server import most_waiting
from tasks.api.waiting import until_some
from tasks.conf import load_settings
from tasks.exceptions import LeaseLost
from tasks.messages import is_same_json
from tasks.models import Task
from tasks.queue.claiming import TaskClaim, find_many, was_ended, were_failed, were_resolved

router = Router(tags=["claims"])

ENDED = {200: EndedOut, **refusals(404, 409, 413, 415, 422)}


@router.post(
    "queues/{queue}/claims",
    auth=CLAIM,
    response={200: ClaimsOut, **refusals(404, 415, 422)},
    summary="Claim tasks",
)
def claim(request: ApiRequest, queue: str, payload: ClaimIn) -> dict[str, object]:
    """Claim the most urgent tasks, up to `limit`. With `wait`, the answer comes as soon as there is a task.

    If there is no task and the server has no thread to spare for another waiting request, it answers 503 `busy` at
    once. A client that disconnects while it waits may still be given tasks; they are free again when their leases
    expire.
    """
    wanted = payload.dict(exclude={"wait"})
    found = queue_of(request.auth, queue)
    claims, waited = found.claim(**wanted), 0.0
    if not claims and payload.wait:
        seconds = min(payload.wait, load_settings().API_WAIT)
        claims, waited = until_some(
            # A token that is revoked, or a queue that is deleted, while the request waits gets nothing more.
            lambda: queue_of(still_usable(request.auth, CLAIM.verb), queue).claim(**wanted),
            found.pk,
            seconds,
            most_waiting(request),
        )
    for each in claims:
        each.task.looked_up_claimant = payload.worker
    return {"claims": claims, "waited": waited}


@router.post(
    "queues/{queue}/claims/resolve",
    auth=CLAIM,
    response={200: EndedManyOut, **refusals(404, 413, 415, 422)},
    summary="End many claims: success",
)
def resolve_many(request: ApiRequest, queue: str, payload: ResolveManyIn) -> dict[str, object]:
    """Complete the tasks of the queue that these claims still hold, each with its result. Report the lost claims.

    A client that lost the answer may repeat the request and gets the same answer.
    """
    found = queue_of(request.auth, queue)
    ends = {end.task: (end.token, end.result) for end in payload.claims}
    _refuse_twice(ends, payload.claims)
    held = {claim: ends[claim.task.pk][1] for claim in find_many(found, {pk: token for pk, (token, _) in ends.items()})}
    lost = found.resolve_many(held)
    done = {claim.task.pk for claim in held if claim not in lost}
    done |= were_resolved(found, {pk: end for pk, end in ends.items() if pk not in done})
    return {"results": [{"task": pk, "outcome": "completed" if pk in done else "lease_lost"} for pk in ends]}


@router.post(
    "queues/{queue}/claims/fail",
    auth=CLAIM,
    response={200: EndedManyOut, **refusals(404, 415, 422)},
    summary="End many claims: failure",
)
def fail_many(request: ApiRequest, queue: str, payload: FailManyIn) -> dict[str, object]:
    """Release the tasks of the queue that these claims still hold, each with its error. Report the lost claims.

    A client that lost the answer may repeat the request and gets the same answer.
    """
    found = queue_of(request.auth, queue)
    ends = {end.task: end for end in payload.claims}
    _refuse_twice(ends, payload.claims)
    tokens = {pk: end.token for pk, end in ends.items()}
    held = find_many(found, tokens)
    lost = found.fail_many({claim: ends[claim.task.pk].error for claim in held})
    done = {claim.task.pk for claim in held if claim not in lost}
    done |= were_failed(found, {pk: token for pk, token in tokens.items() if pk not in done})
    return {"results": [{"task": pk, "outcome": "failed" if pk in done else "lease_lost"} for pk in ends]}


@router.post(
    "tasks/{int:pk}/claim/verify",
    auth=CLAIM,
    response={200: HeldOut, **refusals(404, 409, 415, 422)},
    summary="Check that a claim is held",
)
def verify(request: ApiRequest, pk: int, payload: HeldIn) -> dict[str, object]:
    """Call this right before an action that cannot be undone. Answers 409 `lease_lost` if the claim has ended."""
    held = _held(request, pk, payload)
    held.verify()
    mine = Task.objects.using(held.task._state.db).filter(pk=pk, state_claim=held.token)
    for until, now in mine.values_list("state_locked_until", Now()):
        return {"lease": (until - now).total_seconds()}
    raise LeaseLost(f"task {pk} is not held by this claim any more")


@router.post(
    "tasks/{int:pk}/claim/heartbeat",
    auth=CLAIM,
    response={200: HeldOut, **refusals(404, 409, 415, 422)},
    summary="Extend a claim",
)
def heartbeat(request: ApiRequest, pk: int, payload: HeartbeatIn) -> dict[str, object]:
    """Extend the lease, counted from now, but never past the timeout of the task."""
    held = _held(request, pk, payload)
    held.heartbeat(payload.lease)
    return {"lease": held.lease}


@router.post("tasks/{int:pk}/claim/resolve", auth=CLAIM, response=ENDED, summary="End a claim: success")
def resolve(request: ApiRequest, pk: int, payload: ResolveIn) -> dict[str, object]:
    """Complete the task and store its result."""
    return _end(request, pk, payload, "succeeded", lambda held: held.resolve(payload.result), result=payload.result)


@router.post("tasks/{int:pk}/claim/release", auth=CLAIM, response=ENDED, summary="End a claim: release the task")
def release(request: ApiRequest, pk: int, payload: ReasonIn) -> dict[str, object]:
    """Leave the task to another worker. If this was its last attempt, the task is errored."""
    return _end(request, pk, payload, "released", lambda held: held.release(payload.reason))


@router.post("tasks/{int:pk}/claim/fail", auth=CLAIM, response=ENDED, summary="End a claim: failure")
def fail(request: ApiRequest, pk: int, payload: FailIn) -> dict[str, object]:
    """Release the task and store the error."""
    return _end(request, pk, payload, "failed", lambda held: held.fail(payload.error))


@router.post("tasks/{int:pk}/claim/cancel", auth=CLAIM, response=ENDED, summary="End a claim: cancel the task")
def cancel_claim(request: ApiRequest, pk: int, payload: ReasonIn) -> dict[str, object]:
    """Cancel the task."""
    return _end(request, pk, payload, "canceled", lambda held: held.cancel(payload.reason))


def _refuse_twice(ends: Sized, claims: Sized) -> None:
    if len(ends) < len(claims):
        raise Invalid("claims: a task is listed twice; list each task once")


def _held(request: ApiRequest, pk: int, payload: HeldIn) -> TaskClaim:
    return Task.find_claim(pk, payload.token, using=task_of(request.auth, pk)._state.db)


def _end(
    request: ApiRequest, pk: int, payload: HeldIn, outcome: str, end: Callable[[TaskClaim], None], **kept: object
) -> dict[str, object]:
    """End a claim; a program that asks once more, because it lost the answer, is answered as it was."""
    try:
        end(_held(request, pk, payload))
    except LeaseLost:
        task = task_of(request.auth, pk)
        as_asked = all(is_same_json(getattr(task, name), value) for name, value in kept.items())
        if not (as_asked and was_ended(Task, pk, payload.token, outcome, using=task._state.db)):
            raise
    return {"task": task_of(request.auth, pk)}
