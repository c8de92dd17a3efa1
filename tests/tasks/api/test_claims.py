"""Claims over HTTP: the life of one, what may be said twice, and tasks that were not begun."""

import pytest

from tasks.models import Run, Task
from tests.stator.making import ago, change, expire
from tests.tasks.making import claimed
from tests.tasks.serving import token

pytestmark = pytest.mark.django_db(transaction=True)


def claim_over_http(call, given, **body):
    status, answer = call("POST", "queues/encode/claims", {"worker": "bot-1", **body}, given)
    assert status == 200
    return answer["claims"]


def test_task_that_was_not_begun_is_handed_back_without_an_attempt(call, queue):
    task, given = queue.publish("resize", max_attempts=1).task, token()
    [claim] = claim_over_http(call, given)
    path, body = f"tasks/{task.pk}/claim/release", {"token": claim["token"], "begun": False}
    status, answer = call("POST", path, body, given)
    assert (status, answer["task"]["status"], answer["task"]["attempts"]) == (200, "pending", 0)
    assert not Run.objects.exists()
    # There is no record of it, so a second time is too late.
    assert call("POST", path, body, given)[0] == 409
    assert claimed(queue, "bot-1") == ["resize"]


def test_heartbeat_answers_what_the_task_says_now_and_counts_errors(call, queue):
    given = token()
    options = {"action": "resize", "heartbeat_interval": 5, "max_unexpected_retries": 2}
    status, answer = call("POST", "queues/encode/tasks", options, given)
    assert (status, answer["task"]["heartbeat_interval"], answer["task"]["max_unexpected_retries"]) == (201, 5, 2)
    [claim] = claim_over_http(call, given, lease=30)
    path, body = f"tasks/{answer['task']['id']}/claim/heartbeat", {"token": claim["token"]}
    assert call("POST", path, {**body, "unexpected": True}, given)[1]["unexpected_errors"] == 1
    Task.objects.update(heartbeat_interval=7, max_unexpected_retries=None)
    status, told = call("POST", path, {**body, "unexpected": True}, given)
    assert (status, told.pop("lease")) == (200, pytest.approx(30, abs=15))
    assert told == {"heartbeat_interval": 7, "max_unexpected_retries": None, "unexpected_errors": 2}
    assert call("POST", path, body, given)[0] == 200
    [run] = call("GET", f"tasks/{answer['task']['id']}", None, given)[1]["runs"]
    assert run["unexpected_errors"] == 2
    status, verified = call("POST", path.replace("heartbeat", "verify"), body, given)
    assert (status, verified["heartbeat_interval"]) == (200, 7)


@pytest.mark.needs("progress")
def test_progress_is_put_or_comes_with_a_heartbeat_and_is_shown_while_the_claim_is_valid(call, queue):
    task, given = queue.publish("resize").task, token()
    [claim] = claim_over_http(call, given)
    path, held = f"tasks/{task.pk}/claim", {"token": claim["token"]}
    shown = {"done": 40.0, "total": 100.0, "percent": 40, "text": "page 40"}
    assert call("PUT", f"{path}/progress", {**held, "done": 40, "total": 100, "text": "page 40"}, given)[0] == 200
    assert call("GET", f"tasks/{task.pk}", None, given)[1]["progress"] == shown
    assert call("POST", f"{path}/heartbeat", {**held, "progress": {"done": 41}}, given)[0] == 200
    assert call("GET", "tasks", None, given)[1]["tasks"][0]["progress"]["done"] == 41
    assert call("PUT", f"{path}/progress", {**held, "done": -1}, given)[0] == 422
    # It does not extend the lease, and tells what is left of it.
    change(task, state_attempted=ago(1000), state_locked_until=ago(-99))
    status, answered = call("PUT", f"{path}/progress", {**held, "done": 42}, given)
    assert (status, 0 < answered["lease"] <= 100) == (200, True)
    assert call("POST", f"{path}/release", held, given)[1]["task"]["progress"] is None
    assert call("PUT", f"{path}/progress", {**held, "done": 1}, given)[0] == 409
    assert call("GET", f"tasks/{task.pk}", None, given)[1]["progress"] is None


@pytest.mark.needs("steps")
def test_steps_are_put_while_the_claim_is_held_and_further_claims_get_them(call, queue):
    task, given = queue.publish("resize").task, token()
    [claim] = claim_over_http(call, given)
    path, held = f"tasks/{task.pk}/claim", {"token": claim["token"]}
    assert call("GET", f"{path}/steps", None, given)[1] == {"steps": []}
    first = call("PUT", f"{path}/steps/charge%2Fcard", {**held, "result": {"receipt": "r-1"}}, given)
    again = call("PUT", f"{path}/steps/charge%2Fcard", {**held, "result": {"receipt": "r-1"}}, given)
    assert (first[0], again) == (200, first)
    status, refused = call("PUT", f"{path}/steps/charge%2Fcard", {**held, "result": 2}, given)
    assert (status, refused["error"]) == (409, "step_refused")
    assert refused["detail"].endswith("is recorded already, with another result; give it another name")
    assert call("POST", f"{path}/release", held, given)[0] == 200
    status, lost = call("PUT", f"{path}/steps/mail", held, given)
    assert (status, lost["error"]) == (409, "lease_lost")
    [claim] = claim_over_http(call, given, worker="bot-2")
    [step] = call("GET", f"{path}/steps", None, given)[1]["steps"]
    assert (step["name"], step["result"], step["attempt"]) == ("charge/card", {"receipt": "r-1"}, 1)
    long = call("PUT", f"{path}/steps/{'x' * 101}", {"token": claim["token"]}, given)
    assert (long[0], long[1]["error"]) == (409, "step_refused")


def test_program_that_lost_its_lease_is_refused_and_another_resolves(call, queue, given):
    task = queue.publish("resize").task
    [mine] = claim_over_http(call, given)
    expire(task)
    [theirs] = claim_over_http(call, given, worker="bot-2")
    path = f"tasks/{task.pk}/claim"
    for verb, said in (("verify", {}), ("heartbeat", {}), ("resolve", {"result": "late"})):
        status, refused = call("POST", f"{path}/{verb}", {"token": mine["token"], **said}, given)
        assert (status, refused["error"]) == (409, "lease_lost"), verb
    assert call("POST", f"{path}/resolve", {"token": theirs["token"], "result": "done"}, given)[0] == 200
    assert call("POST", f"{path}/resolve", {"token": theirs["token"], "result": "twice"}, given)[0] == 409
    seen = call("GET", f"tasks/{task.pk}", None, given)[1]
    assert (seen["status"], seen["result"], seen["attempts"]) == ("completed", "done", 2)
    runs = [(run["worker"], run["outcome"], run["timed_out"]) for run in seen["runs"]]
    assert runs == [("bot-2", "succeeded", False), ("bot-1", "", True)]


def test_end_is_answered_again_to_a_program_that_lost_the_answer(call, queue, given):
    for verb, said, status, outcome in (
        ("resolve", {"result": "ok"}, "completed", "succeeded"),
        ("release", {"reason": "busy"}, "pending", "released"),
        ("fail", {"error": "broken"}, "pending", "failed"),
        ("cancel", {"reason": "old"}, "canceled", "canceled"),
    ):
        task = queue.publish("resize", max_attempts=9, priority=1).task
        [claim] = claim_over_http(call, given, worker=verb)
        assert claim["task"]["id"] == task.pk
        body = {"token": claim["token"], **said}
        first = call("POST", f"tasks/{task.pk}/claim/{verb}", body, given)
        assert (first[0], first[1]["task"]["status"]) == (200, status)
        assert call("POST", f"tasks/{task.pk}/claim/{verb}", body, given) == first
        run = task.runs.get()
        assert run.outcome == outcome
        assert next(iter(said.values())) in (run.result if verb == "resolve" else run.reason)
        task.refresh_from_db()
        assert task.state_version == (verb in ("resolve", "cancel"))
        task.delete()
