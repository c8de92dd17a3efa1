"""The HTTP API: what a task tells of its claim and its errors, why it waits, and that a running one can be canceled."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tasks.models import Task
from tests.stator.making import ago, raw
from tests.tasks.serving import token

pytestmark = pytest.mark.django_db


@pytest.fixture
def given():
    return token()


def test_held_task_tells_its_holder_and_its_lease(call, scene, given):
    held = scene.held
    held.refresh_from_db()
    status, found = call("GET", f"tasks/{held.pk}", None, given)
    assert (status, found["claimant"], found["status"], found["errors"]) == (200, "bot-1", "running", [])
    # The API gives milliseconds.
    assert found["claimed_at"][:23] == held.state_attempted.isoformat(timespec="milliseconds")[:23]
    assert found["lease_until"][:23] == held.state_locked_until.isoformat(timespec="milliseconds")[:23]
    found = call("GET", f"tasks/{scene.task.pk}", None, given)[1]
    assert (found["claimant"], found["claimed_at"], found["lease_until"]) == (None, None, None)


def test_task_tells_its_own_limits(call, queue, given):
    body = {"action": "resize", "timeout": 600, "lease": 30}
    published = call("POST", "queues/encode/tasks", body, given)[1]["task"]
    assert (published["timeout"], published["lease"]) == (600, 30)
    [claim] = call("POST", "queues/encode/claims", {"worker": "bot-1"}, given)[1]["claims"]
    assert (claim["task"]["claimant"], claim["task"]["timeout"]) == ("bot-1", 600)


def test_workers_that_rejected_it_and_every_error(call, queue, given):
    task = queue.publish("resize", max_attempts=3).task
    for worker in ("bot-1", "bot-2"):
        [claim] = queue.claim(worker=worker)
        claim.fail(f"broken by {worker}")
        raw(Task).update(state_ready=True, state_next_attempt=None)
    [claim] = queue.claim(worker="bot-3")
    found = call("GET", f"tasks/{task.pk}", None, given)[1]
    assert found["rejected_by"] == ["bot-1", "bot-2"]
    # The claim that is held has no error.
    assert [error.split(":")[0] for error in found["errors"]] == ["bot-1", "bot-2"]
    assert "broken by bot-1" in found["errors"][0]
    raw(Task).update(state_locked_until=ago(1))
    queue.claim(worker="bot-4")
    assert call("GET", f"tasks/{task.pk}", None, given)[1]["errors"][-1] == "bot-3: its lease ran out"


def test_completed_task_has_no_errors(call, scene, given):
    scene.claim.resolve({"ok": True})
    found = call("GET", f"tasks/{scene.held.pk}", None, given)[1]
    assert (found["errors"], found["rejected_by"], found["claimant"]) == ([], [], None)


def test_holders_of_a_page_are_looked_up_together(call, queue, given):
    queue.publish_many([{"action": "resize"}] * 20)
    queue.claim(worker="bot-1", limit=10)
    with CaptureQueriesContext(connection) as queries:
        found = call("GET", "tasks", None, given)[1]["tasks"]
    assert [task["claimant"] for task in found] == ["bot-1"] * 10 + [None] * 10
    assert len(queries) < 10


def test_why_it_waits(call, scene, given):
    scene.queue.pause(claim=True, reason="disk full", author="ann")
    status, found = call("GET", f"tasks/{scene.task.pk}/explain", None, given)
    assert (status, found["task"], found["status"]) == (200, scene.task.pk, "pending")
    first = found["reasons"][0]
    assert first["code"] == "claim_paused"
    assert first["sentence"] == "Nothing of queue encode is claimed: paused by ann (disk full)."
    assert first["remedy"]
    dead = call("GET", f"tasks/{scene.dead.pk}/explain", None, given)[1]
    assert dead["reasons"][0]["code"] == "dead_letter"


def test_running_task_is_canceled_if_that_is_asked_for(call, scene, given):
    path = f"tasks/{scene.held.pk}/cancel"
    assert call("POST", path, None, given)[0] == 409
    status, found = call("POST", f"{path}?running=true&reason=ordered+twice", None, given)
    assert (status, found["status"]) == (200, "canceled")
    body = {"token": str(scene.claim.token)}
    status, found = call("POST", f"tasks/{scene.held.pk}/claim/heartbeat", body, given)
    assert (status, found["error"]) == (409, "lease_lost")
    [run] = call("GET", f"tasks/{scene.held.pk}", None, given)[1]["runs"]
    assert (run["outcome"], run["reason"]) == ("canceled", "ordered twice")
