"""Publishing, canceling and requeuing tasks and batches over HTTP."""

import pytest

from stator.testing import drain, steps
from tasks.models import Batch, Queue, Task
from tests.tasks.making import claim_one, died_after_a_step
from tests.tasks.serving import token

pytestmark = pytest.mark.django_db


class TestPublishing:
    def test_publishes_as_python_does(self, call, queue):
        body = {
            "action": "resize", "data": {"image": 7}, "key": "image-7", "priority": 3, "metadata": {"title": "abc"},
            "lease": 20, "timeout": 30, "invisible_for": 0, "max_attempts": 2, "retention": 60,
            "worker_ids": ["bot-1"],
            "worker_count": 1,  # tasks.extensions.shared
        }  # fmt: skip
        status, found = call("POST", "queues/encode/tasks", body, token())
        assert (status, found["outcome"]) == (201, "inserted")
        task = Task.objects.get()
        for name, value in body.items():
            if name != "invisible_for":
                assert getattr(task, name) == value
        assert found["task"]["id"] == task.pk
        assert found["task"]["status"] == "pending"
        assert found["task"]["queue"] == "encode"

    @pytest.mark.parametrize("bulk", [False, True])
    def test_update_changes_only_what_is_sent(self, call, queue, bulk):
        given = token()
        own = {"data": 1, "timeout": 30, "worker_ids": ["bot-1"], "metadata": {"title": "abc"}, "priority": 3}
        sent = {"action": "resize", "key": "image-7"}
        call("POST", "queues/encode/tasks", {**sent, **own}, given)
        for values in ({"data": 2}, {"timeout": None}, {"worker_ids": []}, {"data": None}):
            body = {**sent, **values}
            body = {"tasks": [body], "update": True} if bulk else {**body, "update": True}
            status, found = call("POST", f"queues/encode/tasks{'/bulk' if bulk else ''}", body, given)
            own |= values
            told = found["results"][0]["task"] if bulk else found["task"]
            assert (status, {name: told[name] for name in own}) == (200, own)

    def test_paused_queue_refuses(self, call, queue):
        given = token()
        call("PUT", "queues/encode/pause", {"publish": True, "reason": "the disk is full"}, given)
        status, found = call("POST", "queues/encode/tasks", {"action": "resize"}, given)
        assert (status, found["error"]) == (409, "paused")
        assert "the disk is full" in found["detail"]

    def test_tasks_of_djangos_framework_are_refused(self, call, queue):
        body = {"action": "django:tests.testapp.tasks.add", "data": {"args": [1], "kwargs": {}, "backend": "default"}}
        status, found = call("POST", "queues/encode/tasks", body, token())
        assert (status, found["error"], Task.objects.exists()) == (400, "invalid", False)
        assert "enqueue it there" in found["detail"]

    def test_running_task_is_changed_and_its_holder_follows(self, call, scene):
        given, held = token(), scene.path("tasks/{held}")
        status, found = call(
            "POST", f"{held}/change", {"heartbeat_interval": 2, "timeout": None, "worker_ids": ["bot-9"]}, given
        )
        assert (status, found["heartbeat_interval"], found["worker_ids"]) == (200, 2, ["bot-9"])
        heartbeat = call("POST", f"{held}/claim/heartbeat", scene.body(f"{held}/claim/heartbeat", {}), given)
        assert (heartbeat[0], heartbeat[1]["error"]) == (409, "lease_lost")
        for body, told in ({"timeout": 0}, 422), ({"data": 1}, 422), ({"worker_ids": ["a\nb"]}, 400):
            assert call("POST", f"{held}/change", body, given)[0] == told
        assert call("POST", scene.path("tasks/{dead}/change"), {"timeout": 5}, given)[0] == 409


@pytest.mark.parametrize("batch", [False, True])
def test_requeued_task_starts_over_only_if_that_is_asked_for(call, queue, batch):
    task = died_after_a_step(queue, batch=Batch(queue=queue) if batch else None)
    address = f"batches/{task.batch_id}/requeue" if batch else f"tasks/{task.pk}/requeue"
    assert call("POST", address, None, given := token())[0] == 200
    assert list(steps(task)) == ["charge"]
    claim_one(queue).fail("no paper")
    assert call("POST", f"{address}?start_over=true", None, given)[0] == 200
    assert not steps(task)


# Batches over HTTP: published with their tasks or opened, shown, canceled, requeued


TASKS = [{"action": "resize", "data": {"image": number}, "key": f"image-{number}"} for number in range(2)]
BATCH = {"key": "album-7", "on_done": {"action": "report", "data": {"album": 7}}}


def published(call, given, **batch):
    status, found = call("POST", "queues/encode/tasks/bulk", {"tasks": TASKS, "batch": {**BATCH, **batch}}, given)
    assert status == 200
    return found["batch"]


@pytest.mark.needs("batches")
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


@pytest.mark.needs("batches")
def test_open_batch_takes_tasks_of_several_requests_until_it_is_closed(call, queue):
    given = token()
    status, found = call("POST", "queues/encode/batches", BATCH, given)
    assert (status, found["state"]) == (201, "filling")
    number = found["id"]
    for task in TASKS:
        status, found = call("POST", "queues/encode/tasks", {**task, "batch": number}, given)
        assert (status, found["task"]["batch"]) == (201, number)
    other = token(name="other", queues=[Queue.objects.create(name="other")])
    assert call("POST", "queues/other/tasks", {"action": "resize", "batch": number}, other)[0] in (404, 409, 422)
    assert call("GET", f"batches/{2**70}", None, given)[0] == 404
    assert call("POST", f"batches/{number}/close", {}, given)[1]["state"] == "running"
    assert call("POST", f"batches/{number}/close", {}, given)[0] == 200


@pytest.mark.needs("batches")
def test_action_that_a_program_may_not_publish_is_refused_with_the_batch(call):
    Queue.objects.create(name="narrow", http_actions=["resize"])
    body = {"tasks": [{"action": "resize", "data": {"image": 1}}], "batch": {"on_done": {"action": "echo"}}}
    status, found = call("POST", "queues/narrow/tasks/bulk", body, token())
    assert (status, found["error"]) == (403, "action_not_allowed"), found
    assert not Task.objects.exists()
