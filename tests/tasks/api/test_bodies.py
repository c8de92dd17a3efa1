"""Request bodies: what is no JSON, what no database can store, and how large and deep they may be."""

import json

import pytest

from tasks.models import Task
from tasks.queue.consumers import Consumer
from tests.tasks.serving import token

pytestmark = pytest.mark.django_db


class TestBodies:
    URL = "/api/queues/encode/tasks"

    def post(self, client, content, content_type="application/json"):
        headers = {"Authorization": f"Bearer {token(f'c{Consumer.objects.count()}')}"}
        answer = client.post(self.URL, content, content_type=content_type, headers=headers)
        assert not Task.objects.exists()
        return answer.status_code, answer.json()["error"], answer.json()["detail"]

    @pytest.mark.parametrize(
        "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
    )
    def test_other_kinds_are_refused(self, client, queue, kind):
        assert self.post(client, b'{"action": "a"}', kind)[:2] == (415, "unsupported_media_type")

    @pytest.mark.parametrize(
        "content", [b"{", b"{'a': 1}", b"\xff", b'{"action": NaN}', b"1" * 5000, b'{"action": "a"} x']
    )
    def test_what_is_no_json(self, client, queue, content):
        assert self.post(client, content)[:2] == (400, "bad_request")

    @pytest.mark.parametrize(
        "content",
        [
            b"", b"[]", b"null", b"7", b'"x"', b"{}", b'{"action": ""}', b'{"action": 7}',
            b'{"action": "a", "more": 1}', b'{"action": "a", "priority": 9223372036854775808}',
            b'{"action": "a", "priority": 1.5}', b'{"action": "a", "data": 1e999}',
            b'{"action": "a", "data": "\\u0000"}', b'{"action": "a\\u0000"}',
            b'{"action": "a", "data": {"\\ud800": 1}}', b'{"action": "a", "metadata": {"x": [1]}}',
            b'{"action": "a", "metadata": {"": 1}}', b'{"action": "a", "max_attempts": 0}',
            b'{"action": "a", "worker_count": 0}', b'{"action": "a", "worker_ids": "bot-1"}',
            b'{"action": "a", "timeout": -1}', b'{"action": "a", "key": ""}', b'{"action": "' + b"a" * 201 + b'"}',
        ],
    )  # fmt: skip
    def test_what_cannot_be_published(self, client, queue, content):
        status, code, detail = self.post(client, content)
        assert (status, code) == (422, "invalid")
        assert detail

    def test_body_is_bounded(self, client, queue, settings):
        settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 1000
        assert self.post(client, json.dumps({"action": "a", "data": "x" * 1000}))[:2] == (413, "too_large")

    @pytest.mark.parametrize("depth", [60, 150, 100_000])
    def test_depth_is_bounded(self, client, queue, depth):
        content = b'{"action": "a", "data": ' + b"[" * depth + b"]" * depth + b"}"
        assert self.post(client, content)[:2] == (422, "invalid")

    def test_mistakes_are_named_by_place_without_the_value(self, client, queue):
        content = json.dumps({"action": "a", "priority": "the secret"})
        _, _, detail = self.post(client, content)
        assert detail.startswith("body.priority: ")
        assert "secret" not in detail

    def test_cannot_know_who_asks_before_the_token_is_right(self, client, queue):
        answer = client.post(self.URL, b"{", content_type="text/plain")
        assert answer.status_code == 401
