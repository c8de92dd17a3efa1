"""What the loop of a client asks for: to hand back what it has not begun, and to count what it tries again."""

import pytest

from tasks.models import Run, Task
from tests.tasks.making import claimed, fresh
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
    assert (status, told.pop("lease")) == (200, pytest.approx(30, abs=1))
    assert told == {"heartbeat_interval": 7, "max_unexpected_retries": None, "unexpected_errors": 2}
    assert call("POST", path, body, given)[0] == 200
    [run] = call("GET", f"tasks/{answer['task']['id']}", None, given)[1]["runs"]
    assert run["unexpected_errors"] == 2
    status, verified = call("POST", path.replace("heartbeat", "verify"), body, given)
    assert (status, verified["heartbeat_interval"]) == (200, 7)


@pytest.mark.parametrize("value", [-1, 0, 0.01, "soon"])
def test_interval_that_is_no_duration_is_refused(call, queue, value):
    status, answer = call("POST", "queues/encode/tasks", {"action": "resize", "heartbeat_interval": value}, token())
    assert (status, answer["error"]) == (422, "invalid")


def test_publication_updates_both_of_a_waiting_task(queue):
    task = queue.publish("resize", key="one", heartbeat_interval=5, max_unexpected_retries=1).task
    queue.publish("resize", key="one", heartbeat_interval=6, update=True)
    assert (fresh(task).heartbeat_interval, fresh(task).max_unexpected_retries) == (6, None)
