"""The worker inside a request."""

import asyncio
import json
import secrets
import signal
import threading
from functools import partial
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from django.core.asgi import get_asgi_application
from django.test import Client
from django.urls import path

from stator import views
from stator.runner import StatorRunner
from stator.views import RequestRunner
from stator.worker.startup import Unusable
from tests.sizes import CROWDED, PATIENCE
from tests.testapp.models import Line, SyncLine
from tests.testapp.operators import Eager, Letter, Parcel

TOKEN = "a-token-of-at-least-thirty-two-bytes"
FORMER = secrets.token_urlsafe(32)
URL = "/stator/run/"
urlpatterns = [path("stator/run/", RequestRunner.as_view())]

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.urls(__name__),
    pytest.mark.filterwarnings("ignore:.*StreamingHttpResponse.*"),
]


@pytest.fixture(autouse=True)
def token(settings: Any) -> None:
    settings.STATOR = {"TOKEN": TOKEN, "HTTP_RUN_FOR": 20.0, "SHUTDOWN_TIMEOUT": 5.0}


def post(client: Client, token: str = TOKEN, url: str = URL) -> Any:
    return client.post(url, headers={"Authorization": f"Bearer {token}"})


def untouched() -> bool:
    return not Line.objects.exclude(state="first").exists() and not Line.objects.filter(state_attempts__gt=0).exists()


class TestToken:
    @pytest.fixture(autouse=True)
    def row(self, few_models: None) -> None:
        Line.objects.create()

    def test_the_right_one_runs_a_worker(self, client: Client) -> None:
        for headers in ({"Authorization": f"Bearer {TOKEN}"}, {"Authorization": f"bearer  {TOKEN}"}):
            assert client.post(URL, headers=headers).status_code == 200
        assert Line.objects.get().state == "last"
        assert client.post(URL, headers={"X-Stator-Token": TOKEN}).status_code == 200

    def test_a_wrong_one_is_not_found(self, client: Client) -> None:
        bearers = ["", "Bearer", "Bearer ", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}"]
        for bearer in (*bearers, "Bearer \u2603\u00e9"):
            assert client.post(URL, headers={"Authorization": bearer}).status_code == 404
        for token in ("", TOKEN.upper(), "\udcff"):
            assert client.post(URL, headers={"X-Stator-Token": token}).status_code == 404
        assert client.post(URL).status_code == 404
        assert untouched()

    def test_what_makes_the_database_unusable_is_in_the_log_alone(
        self, client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def refuse(runner: Any) -> None:
            raise Unusable("table testapp_line lacks column name")

        monkeypatch.setattr(StatorRunner, "run", refuse)
        # The second request is not refused as one too many.
        for answer in (post(client), post(client)):
            assert answer.status_code == 503
            assert answer.json() == {"error": "the database cannot be used; the log says why"}
        [event, _] = [event for event in caplog.records if event.msg == "stator.database_unusable"]
        assert "lacks column name" in vars(event)["why"]

    def test_nothing_but_post_runs(self, client: Client) -> None:
        """Without the token, no method tells that something is there."""
        for method in ("get", "put", "delete", "patch"):
            assert getattr(client, method)(URL).status_code == 404
            assert getattr(client, method)(URL, headers={"X-Stator-Token": TOKEN}).status_code == 405
        assert client.head(URL).status_code == client.options(URL).status_code == 404
        assert untouched()

    def test_off_and_wrong_look_the_same(self, client: Client, settings: Any) -> None:
        wrong = post(client, "wrong")
        settings.STATOR = {}
        off = post(client)
        assert (off.status_code, off.content) == (wrong.status_code, wrong.content)
        settings.STATOR = {"TOKEN": [""]}
        assert post(client, "").status_code == 404
        # A short one is none.
        settings.STATOR = {"TOKEN": "short"}
        assert post(client, "short").status_code == 404
        assert untouched()

    def test_tokens_are_rotated_by_a_list(self, client: Client, settings: Any) -> None:
        settings.STATOR = {**settings.STATOR, "TOKEN": [TOKEN, FORMER]}
        assert [post(client, token).status_code for token in (TOKEN, FORMER, "x" * 40)] == [200, 200, 404]

    @pytest.mark.parametrize("method", ["get", "post"])
    def test_the_query_string_counts_only_where_it_is_allowed(self, client: Client, settings: Any, method: str) -> None:
        url = f"{URL}?token={TOKEN}"
        assert getattr(client, method)(url).status_code == 404
        assert untouched()
        settings.STATOR = {**settings.STATOR, "ALLOW_QUERY_TOKEN": True}
        assert getattr(client, method)(f"{URL}?token=wrong").status_code == 404
        assert getattr(client, method)(url).status_code == 200
        assert Line.objects.get().state == "last"

    def test_no_csrf_token_is_wanted(self) -> None:
        assert post(Client(enforce_csrf_checks=True)).status_code == 200


@pytest.fixture
def few_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker looks at a few models: at all models of the tests it looks for a second."""
    monkeypatch.setattr(views, "StatorRunner", partial(StatorRunner, [Line, SyncLine, Letter, Eager, Parcel]))


@pytest.mark.usefixtures("few_models")
class TestRun:
    def test_says_what_was_done(self, client: Client) -> None:
        Line.objects.create()
        SyncLine.objects.create()
        Parcel.objects.create(orders="never")
        answer = post(client).json()
        assert answer["handled"] == {"testapp.line": 2, "testapp.syncline": 1, "testapp.parcel": 1}
        assert answer["failed"] == 1
        assert answer["seconds"] > 0

    def test_ends_when_time_is_up(self, client: Client, settings: Any) -> None:
        Eager.objects.create()
        # On a crowded machine a worker may take longer to start.
        for run_for in (1.0, 4.0, 16.0, 64.0):
            settings.STATOR = {**settings.STATOR, "HTTP_RUN_FOR": run_for}
            answer = post(client).json()
            assert run_for <= answer["seconds"] < run_for + CROWDED
            if answer["handled"]:
                break
        assert answer["handled"]["testapp.eager"] >= 1

    def test_is_not_part_of_a_transaction_of_the_request(self) -> None:
        callback = RequestRunner.as_view()
        assert callback._non_atomic_requests >= {"default", "other"}  # type: ignore[attr-defined]

    def test_leaves_no_thread_and_no_signal_handler_behind(self, client: Client) -> None:
        Line.objects.create()
        SyncLine.objects.create()
        Letter.objects.create(number="1")
        handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        before = set(threading.enumerate())
        post(client)
        assert Letter.objects.get().state == "posted"
        assert set(threading.enumerate()) == before
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers

    def test_a_second_one_is_refused_meanwhile(self, client: Client) -> None:
        Line.objects.create()
        with views._running:
            response = post(client)
        assert response.status_code == 409
        assert "another request" in response.json()["error"]
        assert untouched()
        assert post(client).status_code == 200

    def test_an_error_does_not_block_later_requests(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(settings: Any) -> None:
            raise RuntimeError("no")

        with monkeypatch.context() as patched, pytest.raises(RuntimeError):
            patched.setattr(views, "_work", fail)
            post(client)
        assert post(client).status_code == 200


@pytest.mark.usefixtures("few_models")
def test_runs_under_asgi() -> None:
    Letter.objects.create(number="1")
    SyncLine.objects.create()
    status, answer = asyncio.run(request_by_asgi())
    assert status == 200
    assert answer["handled"] == {"testapp.letter": 1, "testapp.syncline": 1}


async def request_by_asgi() -> tuple[int, Any]:
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "path": URL,
        "query_string": b"", "headers": [(b"host", b"localhost"), (b"authorization", f"Bearer {TOKEN}".encode())],
    }  # fmt: skip
    communicator = ApplicationCommunicator(get_asgi_application(), scope)
    await communicator.send_input({"type": "http.request", "body": b"", "more_body": False})
    start = await communicator.receive_output(30)
    body = await communicator.receive_output(30)
    await communicator.wait(PATIENCE)
    return start["status"], json.loads(body["body"])
