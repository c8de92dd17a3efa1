"""Request bodies, errors and answers of the API."""

import json

import pytest
from django.db import InternalError, OperationalError

from tasks.api import answers
from tasks.api import queues as queues_module
from tasks.api.schemas import TaskOut
from tasks.extensions.api.models import Consumer
from tasks.models import Task
from tests.tasks.making import STATUSES, fresh, make_queue, make_task
from tests.tasks.serving import token

pytestmark = pytest.mark.django_db


class TestBodies:
    URL = "/api/queues/encode/tasks"

    def post(self, client, content, content_type="application/json"):
        headers = {"Authorization": f"Bearer {token(f'c{Consumer.objects.count()}')}"}
        answer = client.post(self.URL, content, content_type=content_type, headers=headers)
        assert not Task.objects.exists()
        return answer.status_code, answer.json()["error"], answer.json()["detail"]

    def test_other_kinds_are_refused(self, client, queue):
        for kind in ("text/plain", "multipart/form-data; boundary=x", ""):
            assert self.post(client, b'{"action": "a"}', kind)[:2] == (415, "unsupported_media_type"), kind

    def test_what_is_no_json(self, client, queue):
        for content in (b"{", b"\xff", b'{"action": NaN}', b"1" * 5000):
            assert self.post(client, content)[:2] == (400, "bad_request"), content

    def test_what_cannot_be_published(self, client, queue):
        """What JSON can say and Python cannot be given; the tests of messages have the others."""
        for content in (
            b"", b"[]", b"null", b"{}", b'{"action": "a", "more": 1}', b'{"action": "a", "data": 1e999}',
            b'{"action": "a", "data": "\\u0000"}', b'{"action": "a", "data": {"\\ud800": 1}}',
        ):  # fmt: skip
            status, code, detail = self.post(client, content)
            assert (status in (400, 422), code, bool(detail)) == (True, "invalid", True), content

    def test_body_is_bounded(self, client, queue, settings):
        settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000
        assert self.post(client, json.dumps({"action": "a", "data": "x" * 1000}))[:2] == (413, "too_large")

    def test_depth_is_bounded(self, client, queue):
        for depth in (60, 150, 100_000):
            content = b'{"action": "a", "data": ' + b"[" * depth + b"]" * depth + b"}"
            assert self.post(client, content)[:2] == (400, "invalid"), depth

    def test_mistakes_are_named_by_place_without_the_value(self, client, queue):
        content = json.dumps({"action": "a", "priority": "the secret"})
        _, _, detail = self.post(client, content)
        assert detail.startswith("body.priority: ")
        assert "secret" not in detail

    def test_cannot_know_who_asks_before_the_token_is_right(self, client, queue):
        answer = client.post(self.URL, b"{", content_type="text/plain")
        assert answer.status_code == 401


# Errors of the API: wrong paths and methods, faults of the server, and a database that is away


class TestErrors:
    def test_paths_and_methods_that_are_none(self, call, queue, given):
        for path in ("", "nowhere", "queues/encode/nowhere", "tasks/x"):
            assert call("GET", path, None, given)[0] == 404
        status, found = call("DELETE", "tasks", None, given)
        assert (status, found["error"]) == (405, "method_not_allowed")

    def test_faults_of_the_server_are_logged_and_not_shown(self, call, queue, monkeypatch, caplog, settings):
        settings.DEBUG = True

        def broken(*args, **kwargs):
            raise RuntimeError("SELECT secret FROM tasks_queue")

        monkeypatch.setattr(queues_module, "queue_of", broken)
        status, found = call("GET", "queues/encode", None, token())
        assert (status, found["error"]) == (500, "internal")
        assert "secret" not in found["detail"]
        [record] = [record for record in caplog.records if record.name == "tasks.api"]
        assert "SELECT secret" in str(record.exc_info[1])

    def test_database_that_cannot_be_used(self, call, queue, monkeypatch):
        def broken(*args, **kwargs):
            raise InternalError("password authentication failed for user x")

        monkeypatch.setattr(queues_module, "queue_of", broken)
        status, found = call("GET", "queues/encode", None, token())
        assert (status, found["error"]) == (503, "unavailable")
        assert "password" not in found["detail"]

    def test_health_needs_no_token(self, call, client, monkeypatch):
        assert call("GET", "health") == (200, {"status": "ok"})
        assert client.head("/api/health").status_code == 200

        def broken():
            raise OperationalError("gone")

        monkeypatch.setattr(queues_module.connection, "ensure_connection", broken)
        assert call("GET", "health")[0] == client.head("/api/health").status_code == 503


# Answers with tasks that are not validated: they have the form of their schemas


def test_answer_without_validation_has_the_form_of_the_schema():
    queue = make_queue(lease=3)
    options = {"key": "image-7", "metadata": {"title": "abc"}, "lease": 2, "max_attempts": 3, "worker_ids": ["maker"]}
    tasks = [make_task(make_queue(status, lease=3), status, **options) for status in STATUSES]
    tasks.append(queue.publish("resize", worker_count=2).task)  # tasks.extensions.shared
    for task in tasks:
        shown = answers.task_out(fresh(task))
        assert TaskOut(**shown).dict() == shown
        assert list(shown) == list(TaskOut.model_fields)
