"""The HTTP API: queues are made, configured and paused."""

from urllib.parse import quote

import pytest

from tasks.api import queues
from tasks.models import Queue, Task
from tests.tasks.serving import token

pytestmark = pytest.mark.django_db


class TestQueues:
    def test_made_and_configured(self, call):
        given = token()
        body = {"name": "alone", "kind": "exclusive", "exclusive_key": "title", "lease": 20, "max_attempts": 3}
        status, found = call("POST", "queues", body, given)
        assert status == 201
        assert {name: found[name] for name in body} == body
        assert call("POST", "queues", body, given)[0] == 409
        status, found = call("PATCH", "queues/alone", {"lease": None, "retention": 5, "one_per_worker": True}, given)
        assert status == 200
        assert (found["lease"], found["retention"], found["one_per_worker"]) == (None, 5, True)
        assert found["max_attempts"] == 3
        queue = Queue.objects.get()
        assert (queue.lease, queue.retention, queue.one_per_worker, queue.kind) == (None, 5, True, "exclusive")

    def test_every_name_that_a_queue_can_have_has_an_address(self, call, given):
        for name in (" a ", "a?b#c;d", "a%2Fb", "a\\b", "\u00e9", "..."):
            Queue.objects.create(name=name, actions_elsewhere=True)
            address = f"queues/{quote(name, safe='')}"
            assert call("GET", address, token=given)[1]["name"] == name
            assert call("POST", f"{address}/tasks", {"action": "theirs"}, given)[0] == 201
            assert len(call("POST", f"{address}/claims", {"worker": "bot-1"}, given)[1]["claims"]) == 1

    def test_wrong_ones_are_not(self, call, given):
        for body in (
            {}, {"name": "a/b"}, {"name": "half\ud800"}, {"name": "a", "kind": "exclusive"}, {"name": "a", "lease": 0},
            {"name": "a", "lease": "x"}, {"name": "a", "more": 1}, {"name": "a", "one_per_worker": None}, [],
        ):  # fmt: skip
            status, found = call("POST", "queues", body, given)
            assert (status in (400, 422), found["error"]) == (True, "invalid"), body
        assert not Queue.objects.exists()

    def test_kind_key_and_name_stay(self, call, queue, given):
        for body in ({"kind": "exclusive"}, {"exclusive_key": "x"}, {"name": "x"}, {"same_worker_again": None}):
            assert call("PATCH", "queues/encode", body, given)[0] == 422, body

    def test_deleted_once_it_is_empty(self, call, queue):
        given = token()
        assert call("DELETE", "queues/encode", None, given) == (200, {"deleted": "encode", "tasks": 0})
        assert not Queue.objects.exists()
        assert call("DELETE", "queues/encode", None, given)[0] == 404

    def test_with_tasks_it_is_deleted_only_if_that_is_asked_for(self, call, queue, monkeypatch):
        monkeypatch.setattr(queues, "MAX_DELETED", 3)
        given = token()
        queue.publish_many([{"action": "resize"}] * 4)
        status, found = call("DELETE", "queues/encode", None, given)
        assert (status, found["error"]) == (409, "not_empty")
        status, found = call("DELETE", "queues/encode?tasks=true", None, given)
        assert (status, found["error"]) == (409, "not_empty")
        assert "more than 3 tasks" in found["detail"]
        queue.tasks.first().delete()
        assert call("DELETE", "queues/encode?tasks=true", None, given) == (200, {"deleted": "encode", "tasks": 3})
        assert not Task.objects.exists()

    def test_paused_until_a_moment_and_resumed(self, call, queue, given):
        body = {"claim": True, "reason": "the disk is full", "until": "2130-01-31T12:00:00Z"}
        found = call("PUT", "queues/encode/pause", body, given)[1]
        assert found["pause_until"].startswith("2130-01-31T")
        assert queue.current().claiming_paused
        found = call("PUT", "queues/encode/pause", {}, given)[1]
        assert (found["claim_paused"], found["pause_reason"], found["pause_until"]) == (False, "", None)
