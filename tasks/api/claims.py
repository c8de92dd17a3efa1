"""Claiming tasks, and what the holder of a claim does with it.

A claim is ended by its own token alone, and by a consumer that may claim from the queue of the task.
"""

from collections.abc import Callable
from typing import Any

from django.db.models.functions import Now
from ninja import Router

from tasks.api.access import CLAIM, queue_of, still_usable, task_of
from tasks.api.documents import refusals
from tasks.api.errors import Invalid
from tasks.api.schemas import (
    ClaimIn,
    ClaimsOut,
    EndedOut,
    FailIn,
    HeartbeatIn,
    HeldIn,
    HeldOut,
    ReasonIn,
    ResolvedManyOut,
    ResolveIn,
    ResolveManyIn,
)
from tasks.api.server import most_waiting
from tasks.api.waiting import until_some
from tasks.conf import load_settings
from tasks.exceptions import LeaseLost
from tasks.messages import is_same_json
from tasks.models import Task
from tasks.queue.claiming import TaskClaim, find_many, was_ended, were_resolved

router = Router(tags=["claims"])

ENDED = {200: EndedOut, **refusals(404, 409, 413, 415, 422)}


@router.post(
    "queues/{queue}/claims",
    auth=CLAIM,
    response={200: ClaimsOut, **refusals(404, 415, 422)},
    summary="Claim tasks",
)
def claim(request: Any, queue: str, payload: ClaimIn) -> Any:
    """The most urgent ones, up to `limit`. With `wait` it is answered as soon as there is one.

    503 `busy`, at once, when there is none and as many requests wait already as the server has threads to spare.
    Whoever goes away while it waits may be given tasks all the same; they are free again when their leases run out.
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
    return {"claims": claims, "waited": waited}


@router.post(
    "queues/{queue}/claims/resolve",
    auth=CLAIM,
    response={200: ResolvedManyOut, **refusals(404, 413, 415, 422)},
    summary="End many claims: done",
)
def resolve_many(request: Any, queue: str, payload: ResolveManyIn) -> Any:
    """The tasks of the queue that are held still are completed, each with its result, and the others are told.

    Asked again, because the answer was lost, it answers as it did.
    """
    found = queue_of(request.auth, queue)
    ends = {end.task: (end.token, end.result) for end in payload.claims}
    if len(ends) < len(payload.claims):
        raise Invalid("claims: a task is there twice")
    held = {claim: ends[claim.task.pk][1] for claim in find_many(found, {pk: token for pk, (token, _) in ends.items()})}
    lost = found.resolve_many(held)
    done = {claim.task.pk for claim in held if claim not in lost}
    done |= were_resolved(found, {pk: end for pk, end in ends.items() if pk not in done})
    return {"results": [{"task": pk, "outcome": "completed" if pk in done else "lease_lost"} for pk in ends]}


@router.post(
    "tasks/{int:pk}/claim/verify",
    auth=CLAIM,
    response={200: HeldOut, **refusals(404, 409, 415, 422)},
    summary="Ask whether a claim is held",
)
def verify(request: Any, pk: int, payload: HeldIn) -> Any:
    """To be done right before what cannot be undone. 409 `lease_lost` when it is held no more."""
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
    summary="Hold a claim for longer",
)
def heartbeat(request: Any, pk: int, payload: HeartbeatIn) -> Any:
    """From now on, never past the timeout of the task."""
    held = _held(request, pk, payload)
    held.heartbeat(payload.lease)
    return {"lease": held.lease}


@router.post("tasks/{int:pk}/claim/resolve", auth=CLAIM, response=ENDED, summary="End a claim: done")
def resolve(request: Any, pk: int, payload: ResolveIn) -> Any:
    """The task is completed, with a result."""
    return _end(request, pk, payload, "succeeded", lambda held: held.resolve(payload.result), result=payload.result)


@router.post("tasks/{int:pk}/claim/release", auth=CLAIM, response=ENDED, summary="End a claim: not me")
def release(request: Any, pk: int, payload: ReasonIn) -> Any:
    """The task goes to another worker; it is errored if that was its last attempt."""
    return _end(request, pk, payload, "released", lambda held: held.release(payload.reason))


@router.post("tasks/{int:pk}/claim/fail", auth=CLAIM, response=ENDED, summary="End a claim: it failed")
def fail(request: Any, pk: int, payload: FailIn) -> Any:
    """As release, and the error is kept."""
    return _end(request, pk, payload, "failed", lambda held: held.fail(payload.error))


@router.post("tasks/{int:pk}/claim/cancel", auth=CLAIM, response=ENDED, summary="End a claim: it need not be done")
def cancel_claim(request: Any, pk: int, payload: ReasonIn) -> Any:
    """The task is canceled."""
    return _end(request, pk, payload, "canceled", lambda held: held.cancel(payload.reason))


def _held(request: Any, pk: int, payload: HeldIn) -> TaskClaim:
    return Task.find_claim(pk, payload.token, using=task_of(request.auth, pk)._state.db)


def _end(request: Any, pk: int, payload: HeldIn, outcome: str, end: Callable[[TaskClaim], None], **kept: Any) -> Any:
    """End a claim; a program that asks once more, because it lost the answer, is answered as it was."""
    try:
        end(_held(request, pk, payload))
    except LeaseLost:
        task = task_of(request.auth, pk)
        as_asked = all(is_same_json(getattr(task, name), value) for name, value in kept.items())
        if not (as_asked and was_ended(Task, pk, payload.token, outcome, using=task._state.db)):
            raise
    return {"task": task_of(request.auth, pk)}
