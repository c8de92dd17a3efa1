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


def test_who_lost_the_answer_is_answered_as_at_first(call, queue, given):
    claims = held(queue, 3)
    first = call("POST", PATH, ends(claims[:2]), given)
    assert call("POST", PATH, ends(claims[:2]), given) == first
    # What was not done yet is done beside what was.
    assert {told for _, told in outcomes(call("POST", PATH, ends(claims), given))} == {"completed"}
    other = ends(claims, result="another")
    assert {told for _, told in outcomes(call("POST", PATH, other, given))} == {"lease_lost"}
    assert sorted(task.result["n"] for task in every()) == [0, 1, 2]


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


def test_what_is_wrong_in_one_is_refused_for_all_and_none_is_there_twice(call, queue, given):
    claims = held(queue, 2)
    for wrong, told in (
        ({"result": "x" * 300_000}, "result has"), ({"token": "no"}, "token"), ({"task": 0}, "task"),
        ({"more": 1}, "more"),
    ):  # fmt: skip
        body = ends(claims)
        body["claims"][1] |= wrong
        status, found = call("POST", PATH, body, given)
        assert (status in (400, 422), found["error"], told in found["detail"]) == (True, "invalid", True)
    one = ends(claims)["claims"][0]
    for many in ([], [one, one], [{**one, "task": n + 1} for n in range(1001)]):
        assert call("POST", PATH, {"claims": many}, given)[0] in (400, 422)
    assert {task.status for task in every()} == {"running"}


def test_many_fail_each_with_its_own_error(call, queue, given):
    kept, late, last = claims = held(queue, 3)
    raw(Task, late.task._state.db).filter(pk=late.task.pk).update(state_locked_until=ago(1))
    raw(Task, last.task._state.db).filter(pk=last.task.pk).update(max_attempts=1)
    body = {
        "claims": [
            {"task": claim.task.pk, "token": str(claim.token), "error": f"broken {n}"} for n, claim in enumerate(claims)
        ]
    }
    told = [(kept.task.pk, "failed"), (late.task.pk, "lease_lost"), (last.task.pk, "failed")]
    # The second time for who has lost the answer.
    for _ in range(2):
        assert outcomes(call("POST", "queues/encode/claims/fail", body, given)) == told
    assert {task.pk: str(task.state) for task in every()} == {
        kept.task.pk: "pending",
        late.task.pk: "pending",
        last.task.pk: "errored",
    }
    runs = {run.task_id: run for run in raw(Run)}
    assert [runs[claim.task.pk].outcome for claim in claims] == ["failed", "", "failed"]
    assert "broken 2" in runs[last.task.pk].reason
    assert call("POST", "queues/encode/claims/fail", {"claims": body["claims"][:1] * 2}, given)[0] == 400


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
