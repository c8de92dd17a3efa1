"""Requests of a program, and the queue that they are about."""

import pytest

from tasks.api.rate_limits import rates
from tasks.models import Queue
from tests.tasks.serving import Scene, token


@pytest.fixture(autouse=True)
def fresh_rates():
    rates._blocks.clear()


@pytest.fixture
def queue():
    return Queue.objects.create(name="encode", actions_elsewhere=True, http_actions=["resize"])


@pytest.fixture
def given():
    """The token of a consumer that may do everything."""
    return token()


@pytest.fixture
def call(client):
    """``call(method, path, body, token)``: the status and the JSON of the answer."""

    def ask(method, path, body=None, token="", **headers):
        if token:
            headers["Authorization"] = f"Bearer {token}"
        options = {} if body is None else {"data": body, "content_type": "application/json"}
        answer = getattr(client, method.lower())(f"/api/{path}", headers=headers, **options)
        assert answer["Content-Type"].startswith("application/json"), answer.content
        found = answer.json()
        if answer.status_code >= 400:
            assert sorted(found) == ["detail", "error"]
            assert "\n" not in found["detail"]
            assert "Traceback" not in found["detail"]
        return answer.status_code, found

    return ask


@pytest.fixture
def scene(queue):
    return Scene(queue)
