"""Searching and showing tasks over HTTP: filters, pages, claims, errors, and why a task waits."""

import pytest

from stator.models import Report
from tasks.models import Queue, Task
from tests.stator.making import ago, raw
from tests.tasks.serving import token

pytestmark = pytest.mark.django_db


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


def test_log_of_the_latest_failed_attempt(call, scene, given):
    report = {"model_label": "tasks.task", "state": "pending", "error": "OSError", "message": "no disk"}
    Report.objects.create(**report, object_pk=str(scene.task.pk), log="10:00:00 INFO encode: opened image 7")
    assert call("GET", f"tasks/{scene.task.pk}", None, given)[1]["log"] == "10:00:00 INFO encode: opened image 7"
    assert call("GET", f"tasks/{scene.held.pk}", None, given)[1]["log"] is None


@pytest.mark.needs("problems")
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


class TestSearching:
    def found(self, call, query, given):
        status, page = call("GET", f"tasks?{query}", None, given)
        assert status == 200, page
        return [task["id"] for task in page["tasks"]]

    def test_by_what_tasks_are(self, call, scene):
        given, (held, dead, task) = token(), (scene.held.pk, scene.dead.pk, scene.task.pk)
        Queue.objects.create(name="other", actions_elsewhere=True).publish("resize")
        for query, wanted in {
            "queue=encode": [held, dead, task],
            "queue=encode&status=pending": [task],
            "status=running": [held],
            "status=running&status=errored": [held, dead],
            "key=image-3": [task],
            "action=none": [],
            'metadata={"title":"abc"}': [task],
            'metadata={"title":"abc","more":1}': [],
            "worker=bot-1": [held, dead],
            "held_by=bot-1": [held],
            "older_than=3600": [],
            f"after={held}&queue=encode": [dead, task],
        }.items():
            assert self.found(call, query, given) == wanted, query

    def test_page_by_page(self, call, queue):
        queue.publish_many([{"action": "a"} for _ in range(7)])
        given, seen, after = token(), [], "0"
        while after is not None:
            _, page = call("GET", f"tasks?limit=3&after={after}", None, given)
            assert len(page["tasks"]) <= 3
            seen += [task["id"] for task in page["tasks"]]
            after = page["next"]
        assert seen == list(Task.objects.order_by("pk").values_list("pk", flat=True))

    def test_wrong_filters_are_refused(self, call, queue, given):
        for query in (
            "limit=0", "limit=501", "after=x", f"after={10**30}", "status=sleeping", "metadata={",
            'metadata={"a":[1]}', "older_than=nan", "state=errored", "action=%00", "metadata=" + "[" * 5000,
        ):  # fmt: skip
            status, found = call("GET", f"tasks?{query}", None, given)
            assert (status in (400, 422), found["error"]) == (True, "invalid"), query

    def test_what_is_not_there(self, call, queue, given):
        for path in ("tasks/0", f"tasks/{10**30}", "queues/%00", "queues/half%ED%A0%80", "queues/x'--"):
            assert call("GET", path, None, given)[0] in (400, 404), path
