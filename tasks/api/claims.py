"""Endpoints that claim tasks, and endpoints for the holder of a claim.

A request that ends a claim needs the claim's own token, and a consumer that may claim from the task's queue.
"""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from uuid import UUID

from asgiref.sync import sync_to_async
from django.http import HttpResponse

from stator.graph.durations import seconds_of
from tasks.api.access import CLAIM, ApiRequest, queue_of, still_usable, task_of
from tasks.api.answers import answer, claims_out, task_out
from tasks.api.documents import Endpoints, responses
from tasks.api.errors import Invalid
from tasks.api.schemas import (
    ClaimIn,
    ClaimsOut,
    EndedManyOut,
    EndedOut,
    FailIn,
    FailManyIn,
    HeartbeatIn,
    HeartbeatManyIn,
    HeldIn,
    HeldManyOut,
    HeldOut,
    KeptIn,
    ReasonIn,
    ReleaseIn,
    ResolveIn,
    ResolveManyIn,
)
from tasks.api.server import give_connections_back, most_waiting
from tasks.conf import load_settings
from tasks.exceptions import LeaseLost
from tasks.extensions.api.models import Verb
from tasks.models import Queue, Task
from tasks.queue.held_claims import Results, TaskClaim, find_many, of_row, were_ended
from tasks.queue.waiting import auntil_some, until_some

router = Endpoints(tags=["claims"])

# The states of a task after these outcomes of a claim, whatever its attempts.
KNOWN_ENDS = {"succeeded": "completed", "canceled": "canceled"}


PATH = "queues/{queue}/claims"
CLAIMED = responses(ClaimsOut, [404, 415, 422])


@router.at("POST", PATH, CLAIM, ClaimsOut, "Claim tasks")
def claim(request: ApiRequest, queue: str, payload: ClaimIn) -> HttpResponse:
    """Claim the most urgent tasks, up to `limit`. With `wait`, the answer comes as soon as there is a task.

    If there is no task and the server has no thread to spare for another waiting request, it answers 503 `busy` at
    once. A client that disconnects while it waits may still be given tasks; they are free again when their leases
    expire.
    """
    own = queue_of(request.auth, queue)
    claims, waited = own.claim(**payload.of_claim()), 0.0
    if not claims and payload.wait:
        give_connections_back()
        again = partial(_claim_again, request, queue, payload)
        claims, waited = until_some(again, own, _seconds(payload), most=most_waiting(request))
    return _answer(claims, waited, payload)


async def aclaim(request: ApiRequest, queue: str, payload: ClaimIn) -> HttpResponse:
    """Run :func:`claim` without holding a thread while it waits."""
    claims, own = await sync_to_async(_claim_once)(request, queue, payload)
    waited = 0.0
    if not claims and payload.wait:
        again = partial(sync_to_async(_claim_again), request, queue, payload)
        claims, waited = await auntil_some(again, own, _seconds(payload), most=most_waiting(request))
    return _answer(claims, waited, payload)


def _claim_once(request: ApiRequest, queue: str, payload: ClaimIn) -> tuple[list[TaskClaim], Queue]:
    try:
        own = queue_of(request.auth, queue)
        return own.claim(**payload.of_claim()), own
    finally:
        give_connections_back()


def _claim_again(request: ApiRequest, queue: str, payload: ClaimIn) -> list[TaskClaim]:
    """Claim for a request that waits. If its token is revoked or the queue is deleted meanwhile, it gets nothing."""
    try:
        return still_usable(request.auth, Verb.CLAIM, queue).claim(**payload.of_claim())
    finally:
        give_connections_back()


def _seconds(payload: ClaimIn) -> float:
    return min(payload.wait, load_settings().API_WAIT)


def _answer(claims: list[TaskClaim], waited: float, payload: ClaimIn) -> HttpResponse:
    for each in claims:
        each.task.holder = payload.worker
    return answer(claims_out(claims, waited))


@router.at("POST", "queues/{queue}/claims/heartbeat", CLAIM, HeldManyOut, "Extend many claims")
def heartbeat_many(request: ApiRequest, queue: str, payload: HeartbeatManyIn) -> dict[str, object]:
    """Extend the leases of these claims, counted from now, but never past the timeouts of the tasks.

    Report the lost claims. Claims on tasks of other queues count as lost.
    """
    own, tokens = queue_of(request.auth, queue), _tokens(payload.claims)
    leases = {}
    for held in find_many(own, tokens):
        with suppress(LeaseLost):
            held.heartbeat(payload.lease)
            leases[held.task.pk] = held.lease
    outcomes = {pk: "held" if pk in leases else "lease_lost" for pk in tokens}
    return {"results": [{"task": pk, "outcome": outcome, "lease": leases.get(pk)} for pk, outcome in outcomes.items()]}


@router.at("POST", "queues/{queue}/claims/resolve", CLAIM, EndedManyOut, "End many claims: success", 413)
def resolve_many(request: ApiRequest, queue: str, payload: ResolveManyIn) -> dict[str, object]:
    """Complete the tasks of the queue that these claims still hold, each with its result. Report the lost claims.

    A client that lost the answer may repeat the request and gets the same answer.
    """
    results = {end.task: end.result for end in payload.claims}
    own, tokens = queue_of(request.auth, queue), _tokens(payload.claims)
    held = find_many(own, tokens)
    lost = own.resolve_many({claim: results[claim.task.pk] for claim in held})
    return _ended_many(own, tokens, set(held) - set(lost), "succeeded", "completed", results)


@router.at("POST", "queues/{queue}/claims/fail", CLAIM, EndedManyOut, "End many claims: failure")
def fail_many(request: ApiRequest, queue: str, payload: FailManyIn) -> dict[str, object]:
    """Release the tasks of the queue that these claims still hold, each with its error. Report the lost claims.

    A client that lost the answer may repeat the request and gets the same answer.
    """
    errors = {end.task: end.error for end in payload.claims}
    own, tokens = queue_of(request.auth, queue), _tokens(payload.claims)
    held = find_many(own, tokens)
    lost = own.fail_many({claim: errors[claim.task.pk] for claim in held})
    return _ended_many(own, tokens, set(held) - set(lost), "failed", "failed")


def _ended_many(
    queue: Queue, tokens: dict[int, UUID], ended: set[TaskClaim], outcome: str, success: str, results: Results = None
) -> dict[str, object]:
    """Return one result for each claim. A claim that an earlier request ended in the same way counts as ended."""
    done = {claim.task.pk for claim in ended}
    done |= were_ended(queue, {pk: token for pk, token in tokens.items() if pk not in done}, outcome, results)
    return {"results": [{"task": pk, "outcome": success if pk in done else "lease_lost"} for pk in tokens]}


@router.at("POST", "tasks/{int:pk}/claim/verify", CLAIM, HeldOut, "Check that a claim is held", 409)
def verify(request: ApiRequest, pk: int, payload: HeldIn) -> dict[str, object]:
    """Call this right before an action that cannot be undone. Answers 409 `lease_lost` if the claim has ended."""
    return verified(held_by(request, pk, payload))


@router.at("POST", "tasks/{int:pk}/claim/heartbeat", CLAIM, HeldOut, "Extend a claim", 409)
def heartbeat(request: ApiRequest, pk: int, payload: HeartbeatIn) -> HttpResponse:
    """Extend the lease, counted from now, but never past the timeout of the task."""
    held = held_by(request, pk, payload)
    if (reached := payload.progress) is not None:
        held.take_news("reached", reached.done, reached.total, reached.text)
    held.heartbeat(payload.lease, unexpected=payload.unexpected)
    return answer(_held_out(held, held.lease))


@router.at("POST", "tasks/{int:pk}/claim/resolve", CLAIM, EndedOut, "End a claim: success", 409, 413)
def resolve(request: ApiRequest, pk: int, payload: ResolveIn) -> HttpResponse:
    """Complete the task and store its result."""
    return _end(request, pk, payload, "succeeded", lambda held: held.resolve(payload.result), result=payload.result)


@router.at("POST", "tasks/{int:pk}/claim/release", CLAIM, EndedOut, "End a claim: release the task", 409, 413)
def release(request: ApiRequest, pk: int, payload: ReleaseIn) -> HttpResponse:
    """Leave the task to another worker. If this was its last attempt, the task is errored.

    A task that was not begun is for every worker again, and has no attempt less.
    """
    end = (lambda held: held.release(payload.reason)) if payload.begun else TaskClaim.hand_back
    return _end(request, pk, payload, "released", end)


@router.at("POST", "tasks/{int:pk}/claim/fail", CLAIM, EndedOut, "End a claim: failure", 409, 413)
def fail(request: ApiRequest, pk: int, payload: FailIn) -> HttpResponse:
    """Release the task and store the error."""
    return _end(request, pk, payload, "failed", lambda held: held.fail(payload.error))


@router.at("POST", "tasks/{int:pk}/claim/cancel", CLAIM, EndedOut, "End a claim: cancel the task", 409, 413)
def cancel_claim(request: ApiRequest, pk: int, payload: ReasonIn) -> HttpResponse:
    """Cancel the task."""
    return _end(request, pk, payload, "canceled", lambda held: held.cancel(payload.reason))


def _tokens(claims: Sequence[KeptIn]) -> dict[int, UUID]:
    """Return the tokens by task; raise ``Invalid`` if a task is listed twice."""
    tokens = {each.task: each.token for each in claims}
    if len(tokens) < len(claims):
        raise Invalid("claims: a task is listed twice; list each task once")
    return tokens


def held_by(request: ApiRequest, pk: int, payload: HeldIn) -> TaskClaim:
    """Return the claim that the request names; raise ``LeaseLost`` if a named worker does not hold it any more."""
    # The first statement of the request has read the task with the name of its holder.
    task = task_of(request.auth, pk)
    return of_row(task, payload.token, task.holder)


def verified(held: TaskClaim) -> dict[str, object]:
    """Return the answer for a claim that stands; raise ``LeaseLost`` if it has ended."""
    held.verify()
    return _held_out(held, seconds_of(held.task.state_locked_until - held.task.queue.read_at))


def _held_out(held: TaskClaim, lease: float) -> dict[str, object]:
    return {
        "lease": lease,
        "heartbeat_interval": held.heartbeat_interval,
        "max_unexpected_retries": held.max_unexpected_retries,
        "unexpected_errors": held.unexpected_errors,
    }


def _end(
    request: ApiRequest, pk: int, payload: HeldIn, outcome: str, end: Callable[[TaskClaim], None], **kept: object
) -> HttpResponse:
    """End a claim. A program that lost the answer and repeats the request gets the same answer."""
    try:
        held = held_by(request, pk, payload)
        end(held)
    except LeaseLost:
        task = task_of(request.auth, pk)
        results = {pk: kept["result"]} if kept else None
        if pk not in were_ended(task.queue, {pk: payload.token}, outcome, results):
            raise
        return _ended_out(task)
    if held.left is not None:
        return _ended_out(_without_claim(held, **held.left))
    state = KNOWN_ENDS.get(outcome)
    # PostgreSQL stores 1e23 as a whole number, so only the stored result has the form that a repeated request gets.
    if state is None or "e+" in json.dumps(kept):
        return _ended_out(task_of(request.auth, pk))
    return _ended_out(_ended(held, state, **kept))


def _ended_out(task: Task) -> HttpResponse:
    return answer({"task": task_out(task)})


def _ended(held: TaskClaim, state: str, **values: object) -> Task:
    """Return the task as it is after this end of its claim, without reading it again."""
    counted: dict[str, object] = {"counted": held.attempt, "state_next_attempt": None}
    return _without_claim(held, state=state, state_ready=False, **counted, **values)


def _without_claim(held: TaskClaim, **values: object) -> Task:
    task: Task = held.task
    gone = dict.fromkeys(("state_claim", "state_locked_until", "holder"))
    task.__dict__.update(gone, **values)
    return task
