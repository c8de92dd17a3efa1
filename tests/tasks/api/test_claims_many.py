"""Many claims that end in one request: each by its own token, and told one by one."""

import pytest

from tasks.models import Run, Task
from tests.stator.making import ago, raw
from tests.tasks.serving import NOBODYS, token

pytestmark = pytest.mark.django_db(transaction=True)

PATH = "queues/encode/claims/resolve"


def every(**lookups):
    return raw(Task).filter(**lookups).order_by("pk")


def held(queue, count, worker="bot-1"):
    """Claims of so many new tasks."""
    queue.publish_many([{"action": "resize"}] * count)
    claims = queue.claim(worker=worker, limit=count)
    assert len(claims) == count
    return claims


def ends(claims, **replaced):
    return {
        "claims": [
            {"task": claim.task.pk, "token": str(claim.token), "result": {"n": n}, **replaced}
            for n, claim in enumerate(claims)
        ]
    }


def outcomes(answer):
    status, found = answer
    assert status == 200, found
    return [(each["task"], each["outcome"]) for each in found["results"]]


def test_each_is_completed_with_its_own_result_and_answered_in_order(call, queue, given):
    claims = held(queue, 7)
    claims.reverse()
    told = outcomes(call("POST", PATH, ends(claims), given))
    assert told == [(claim.task.pk, "completed") for claim in claims]
    results = {task.pk: task.result for task in every(state="completed")}
    assert results == {claim.task.pk: {"n": n} for n, claim in enumerate(claims)}
    runs = [*raw(Run)]
    assert [(run.outcome, run.result) for run in runs] == [("succeeded", results[run.task_id]) for run in runs]


def test_token_is_that_of_the_very_task(call, queue, given):
    mine, theirs = held(queue, 1, "bot-1"), held(queue, 1, "bot-2")
    for wrong in (NOBODYS, str(theirs[0].token)):
        assert [told for _, told in outcomes(call("POST", PATH, ends(mine, token=wrong), given))] == ["lease_lost"]
    swapped = ends([*mine, *theirs])
    first, second = swapped["claims"]
    first["token"], second["token"] = second["token"], first["token"]
    assert [told for _, told in outcomes(call("POST", PATH, swapped, given))] == ["lease_lost"] * 2
    assert {str(task.state) for task in every()} == {"pending"}
    # A repeated request, too: each token has completed a task, but not the one that it is sent for.
    assert [told for _, told in outcomes(call("POST", PATH, ends([*mine, *theirs]), given))] == ["completed"] * 2
    assert [told for _, told in outcomes(call("POST", PATH, swapped, given))] == ["lease_lost"] * 2


def test_many_are_extended_and_those_that_are_lost_are_told(call, queue, given):
    kept, late, ended, last = claims = held(queue, 4)
    raw(Task, late.task._state.db).filter(pk=late.task.pk).update(state_locked_until=ago(1))
    ended.release()
    body = {"lease": 40, "claims": [{"task": claim.task.pk, "token": str(claim.token)} for claim in claims]}
    body["claims"][3]["token"] = NOBODYS
    status, found = call("POST", "queues/encode/claims/heartbeat", body, given)
    assert status == 200
    told = [(each["task"], each["outcome"], each["lease"]) for each in found["results"]]
    # What is left of a lease is counted from the claim's own clock.
    assert told == [
        (kept.task.pk, "held", pytest.approx(40, abs=15)),
        (late.task.pk, "lease_lost", None),
        (ended.task.pk, "lease_lost", None),
        (last.task.pk, "lease_lost", None),
    ]
    until = {run.task_id: run.lease for run in raw(Run)}
    assert [until[claim.task.pk] for claim in claims] == [40, None, None, None]
    twice = {"claims": body["claims"][:1] * 2}
    assert call("POST", "queues/encode/claims/heartbeat", twice, given)[0] == 400
    assert call("POST", "queues/encode/claims/heartbeat", body, token("other", verbs=["query"]))[0] == 403
