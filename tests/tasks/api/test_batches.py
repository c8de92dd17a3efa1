"""Batches over HTTP: published with their tasks or opened, shown, canceled, requeued."""

import pytest

from stator.testing import drain
from tasks.models import Batch, Queue, Task
from tests.tasks.making import claim_one
from tests.tasks.serving import token

pytestmark = pytest.mark.django_db

TASKS = [{"action": "resize", "data": {"image": number}, "key": f"image-{number}"} for number in range(2)]
BATCH = {"key": "album-7", "on_done": {"action": "report", "data": {"album": 7}}}


def published(call, given, **batch):
    status, found = call("POST", "queues/encode/tasks/bulk", {"tasks": TASKS, "batch": {**BATCH, **batch}}, given)
    assert status == 200
    return found["batch"]


def test_batch_is_published_with_its_tasks_and_shown_with_its_counts(call, queue):
    given = token()
    number = published(call, given)
    assert published(call, given) == number
    claim_one(queue).resolve()
    status, found = call("GET", f"batches/{number}", None, given)
    assert (status, found["state"], found["key"], found["queue"]) == (200, "running", "album-7", "encode")
    assert (found["counts"]["total"], found["counts"]["completed"], found["progress"]["percent"]) == (2, 1, 50)
    claim_one(queue).resolve()
    drain(Batch)
    assert call("GET", f"batches/{number}", None, given)[1]["state"] == "done"
    [report] = call("GET", "tasks?action=report", None, given)[1]["tasks"]
    assert (report["data"], Task.objects.get(pk=report["id"]).elsewhere_only) == ({"album": 7}, True)
    status, found = call("GET", f"tasks?batch={number}&status=completed", None, given)
    assert [task["batch"] for task in found["tasks"]] == [number] * 2


def test_open_batch_takes_tasks_of_several_requests_until_it_is_closed(call, queue):
    given = token()
    status, found = call("POST", "queues/encode/batches", BATCH, given)
    assert (status, found["state"]) == (201, "filling")
    number = found["id"]
    for task in TASKS:
        status, found = call("POST", "queues/encode/tasks", {**task, "batch": number}, given)
        assert (status, found["task"]["batch"]) == (201, number)
    assert call("POST", f"batches/{number}/close", {}, given)[1]["state"] == "running"
    assert call("POST", f"batches/{number}/close", {}, given)[0] == 200


def test_batch_is_requeued_and_canceled(call, queue):
    given = token()
    number = published(call, given)
    Task.objects.update(max_attempts=1)
    for _ in TASKS:
        claim_one(queue).fail("no such image")
    drain(Batch)
    status, found = call("POST", f"batches/{number}/requeue", {}, given)
    assert (status, found["state"], found["counts"]["pending"]) == (200, "running", 2)
    status, found = call("POST", f"batches/{number}/cancel?reason=twice", {}, given)
    assert (status, found["state"], found["counts"]["canceled"]) == (200, "canceled", 2)
    status, found = call("POST", f"batches/{number}/requeue", {}, given)
    assert (status, found["error"]) == (409, "conflict"), found


def test_token_reaches_batches_of_its_queues_only(call, queue):
    number = published(call, token())
    other = token(name="other", queues=[Queue.objects.create(name="other")])
    for method, path in (("GET", ""), ("POST", "/close"), ("POST", "/cancel"), ("POST", "/requeue")):
        assert call(method, f"batches/{number}{path}", None if method == "GET" else {}, other)[0] == 404
    assert call("POST", "queues/other/tasks", {"action": "resize", "batch": number}, other)[0] in (404, 409, 422)
    assert call("GET", f"batches/{2**70}", None, token(name="third"))[0] == 404


def test_action_that_a_program_may_not_publish_is_refused_with_the_batch(call):
    Queue.objects.create(name="narrow", http_actions=["resize"])
    body = {"tasks": [{"action": "resize", "data": {"image": 1}}], "batch": {"on_done": {"action": "echo"}}}
    status, found = call("POST", "queues/narrow/tasks/bulk", body, token())
    assert (status, found["error"]) == (403, "action_not_allowed"), found
    assert not Task.objects.exists()
