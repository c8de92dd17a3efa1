"""Errors of the API: wrong paths and methods, faults of the server, and a database that is away."""

import pytest
from django.db import OperationalError

from tasks.api import queues as queues_module
from tests.tasks.serving import token

pytestmark = pytest.mark.django_db


class TestErrors:
    @pytest.mark.parametrize("path", ["nowhere", "", "queues/encode/nowhere", "tasks/x", "queues//tasks"])
    def test_paths_that_are_none(self, call, queue, path):
        assert call("GET", path, None, token())[0] == 404

    @pytest.mark.parametrize(
        ("method", "path"), [("DELETE", "tasks"), ("GET", "queues/encode/tasks"), ("PUT", "tasks")]
    )
    def test_methods_that_are_none(self, call, queue, method, path):
        status, found = call(method, path, None, token())
        assert (status, found["error"]) == (405, "method_not_allowed")

    @pytest.mark.parametrize("debug", [True, False])
    def test_faults_of_the_server_are_logged_and_not_shown(self, call, queue, monkeypatch, caplog, settings, debug):
        settings.DEBUG = debug

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
            raise OperationalError("password authentication failed for user x")

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
