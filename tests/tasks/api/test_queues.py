"""The HTTP API: queues are made, configured and paused."""

import json
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

    @pytest.mark.parametrize("name", ["a b", " a ", "a?b", "a#b", "a%2Fb", "%", "a\\b", "a;b", "é", "..."])
    def test_every_name_that_a_queue_can_have_has_an_address(self, call, name):
        Queue.objects.create(name=name, actions_elsewhere=True)
        given, address = token(), f"queues/{quote(name, safe='')}"
        assert call("GET", address, token=given)[1]["name"] == name
        assert call("POST", f"{address}/tasks", {"action": "theirs"}, given)[0] == 201
        assert len(call("POST", f"{address}/claims", {"worker": "bot-1"}, given)[1]["claims"]) == 1

    @pytest.mark.parametrize(
        "body",
        [
            {}, {"name": ""}, {"name": "a/b"}, {"name": "a\n"}, {"name": "x" * 101}, {"name": "a", "kind": "odd"},
            {"name": "nul\0"}, {"name": "half\ud800"},
            {"name": "a", "kind": "exclusive"}, {"name": "a", "exclusive_key": "title"}, {"name": "a", "lease": 0},
            {"name": "a", "lease": "x"}, {"name": "a", "max_attempts": 0}, {"name": "a", "more": 1}, {"name": None},
            {"name": "a", "kind": "exclusive", "exclusive_key": "7"},
            {"name": "a", "one_per_worker": None}, {"name": "a", "lease": 1e300}, [], "x", None,
        ],
    )  # fmt: skip
    def test_wrong_ones_are_not(self, call, body):
        body = json.dumps(body) if body in ("x", None) else body
        status, found = call("POST", "queues", body, token())
        assert (status in (400, 422), found["error"]) == (True, "invalid")
        assert not Queue.objects.exists()

    @pytest.mark.parametrize(
        "body", [{"kind": "exclusive"}, {"exclusive_key": "x"}, {"name": "x"}, {"same_worker_again": None}]
    )
    def test_kind_key_and_name_stay(self, call, queue, body):
        assert call("PATCH", "queues/encode", body, token())[0] == 422

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

    def test_paused_and_resumed(self, call, queue):
        given = token()
        queue.publish("resize")
        body = {"claim": True, "reason": "the disk is full", "until": "2130-01-31T12:00:00Z"}
        status, found = call("PUT", "queues/encode/pause", body, given)
        assert status == 200
        assert (found["claim_paused"], found["publish_paused"], found["pause_reason"]) == (
            True,
            False,
            "the disk is full",
        )
        assert found["pause_until"].startswith("2130-01-31T")
        assert found["pause_author"] == "full"
        claims = {"worker": "bot-1"}
        assert call("POST", "queues/encode/claims", claims, given)[1]["claims"] == []
        assert call("POST", "queues/encode/tasks", {"action": "resize"}, given)[0] == 201
        status, found = call("PUT", "queues/encode/pause", {}, given)
        assert (found["claim_paused"], found["pause_reason"], found["pause_until"]) == (False, "", None)
        assert len(call("POST", "queues/encode/claims", claims, given)[1]["claims"]) == 1

    def test_page_by_page(self, call):
        for name in "cab":
            Queue.objects.create(name=name)
        given = token()
        _, page = call("GET", "queues?limit=2", None, given)
        assert [queue["name"] for queue in page["queues"]] == ["a", "b"]
        _, page = call("GET", f"queues?limit=2&after={page['next']}", None, given)
        assert ([queue["name"] for queue in page["queues"]], page["next"]) == (["c"], None)
