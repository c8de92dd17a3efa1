"""Claims that wait: woken well under a second after a publication, holding nothing meanwhile, and bounded."""

import threading
import time
from contextlib import contextmanager

import pytest
from django.db import DatabaseError, connection, connections
from django.test import Client
from django.urls import resolve

from tasks.api import claims
from tasks.extensions.api.models import Consumer
from tasks.models import Queue, Task
from tasks.queue import waiting as module
from tasks.queue.waiting import Waiters, waiters, with_ready
from tests.processes import wait_until
from tests.sizes import PATIENCE
from tests.tasks.serving import token

# So long a claim waits if nothing wakes it.
MAX_WAIT = 60
# Of seconds that are promised to be few.
SOON = MAX_WAIT / 2

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def no_watch_is_left(settings):
    # The test client says that it has no threads.
    settings.STATOR_TASKS = {"API_WAITING": 20, "API_WAIT": MAX_WAIT}
    yield
    wait_until(lambda: not [thread for thread in threading.enumerate() if thread.name == "tasks-waiting"])


class Waiting(threading.Thread):
    """A request that waits, in a thread of its own as a server has it."""

    def __init__(self, given, *, wait=MAX_WAIT, queue="encode", **body):
        super().__init__()
        self.given, self.queue, self.body = given, queue, {"worker": "bot-1", "wait": wait, **body}
        self.open = None

    def run(self):
        try:
            began = time.monotonic()
            self.answer = Client().post(
                f"/api/queues/{self.queue}/claims",
                self.body,
                content_type="application/json",
                headers={"Authorization": f"Bearer {self.given}"},
            )
            self.seconds = time.monotonic() - began
            self.ended = time.monotonic()
        finally:
            connections.close_all()

    @property
    def claims(self):
        assert self.answer.status_code == 200, self.answer.content
        return self.answer.json()["claims"]


@contextmanager
def waiting(*requests):
    """The requests, once all of them wait; ended by the end of the context."""
    for request in requests:
        request.start()
    # Those that wait for a short time only may have waited, where this thread did not run meanwhile.
    wait_until(
        lambda: len(waiters) == len(requests) or not all(request.is_alive() for request in requests),
        message="they do not wait",
    )
    yield
    for request in requests:
        request.join(PATIENCE)
        assert not request.is_alive()


def test_publication_of_another_process_wakes_it(queue, monkeypatch):
    # As if the signal had been sent in another process.
    monkeypatch.setattr(waiters, "wake", lambda queues=None: queues is not None and Waiters.wake(waiters, queues))
    request = Waiting(token())
    with waiting(request):
        queue.publish("resize", 7)
        published = time.monotonic()
    assert [claim["task"]["data"] for claim in request.claims] == [7]
    assert request.ended - published < SOON


@pytest.mark.parametrize("held", [False, True], ids=["invisible", "its lease runs out"])
def test_task_that_comes_due_wakes_it(queue, held):
    queue.publish("resize", 7, invisible_for=0 if held else 0.5)
    if held:
        queue.claim(worker="bot-0", lease=0.5)
    request = Waiting(token())
    with waiting(request):
        pass
    assert [claim["attempt"] for claim in request.claims] == [2 if held else 1]
    assert request.seconds < SOON


def test_it_ends_empty_after_the_most_that_is_allowed(queue, settings):
    settings.STATOR_TASKS = {"API_WAIT": 0.5, "API_WAITING": 20}
    request = Waiting(token(), wait=600)
    with waiting(request):
        pass
    assert request.claims == []
    assert 0.5 <= request.seconds < SOON


def test_what_it_may_not_claim_does_not_wake_it_for_long(queue, monkeypatch):
    tried = []
    claim = Queue.claim
    monkeypatch.setattr(Queue, "claim", lambda self, **options: tried.append(1) or claim(self, **options))
    queue.publish("resize", 1, metadata={"title": "other"})
    request = Waiting(token(), wait=1, metadata={"title": "mine"})
    with waiting(request):
        pass
    assert request.claims == []
    # As often as it looks, and not each time that somebody sees the task.
    assert 1 <= len(tried) <= 12


def test_it_holds_neither_transaction_nor_connection(queue, monkeypatch, settings):
    # Django may use one dictionary for both, so both are put back.
    for of_default in (settings.DATABASES["default"], connection.settings_dict):
        monkeypatch.setitem(of_default, "ATOMIC_REQUESTS", True)
    seen = []
    close = claims.give_connections_back

    def spy():
        close()
        seen.append([each.connection is None for each in connections.all(initialized_only=True)])
        seen.append([each.in_atomic_block for each in connections.all(initialized_only=True)])

    monkeypatch.setattr(claims, "give_connections_back", spy)
    request = Waiting(token(), wait=0.5)
    with waiting(request):
        pass
    assert request.claims == []
    assert all(seen[0])
    assert not any(seen[1])


def test_no_request_is_a_transaction():
    for path in ("/api/queues", "/api/queues/x/claims", "/api/tasks/1"):
        assert resolve(path).func._non_atomic_requests == set(connections), path


def test_token_that_is_revoked_or_may_claim_no_more_meanwhile_gets_nothing(queue):
    request = Waiting(token())
    with waiting(request):
        Consumer.objects.update(may_claim=False)
        queue.publish("resize", 7)
    assert request.answer.status_code == 403
    assert Task.objects.get().status == "pending"


def test_paused_queue_hands_out_nothing_until_it_is_resumed(queue):
    queue.pause(claim=True)
    queue.publish("resize", 7)
    request = Waiting(token())
    with waiting(request):
        assert len(waiters) == 1
        queue.resume()
        resumed = time.monotonic()
    assert len(request.claims) == 1
    assert request.ended - resumed < SOON


def test_beyond_the_limit_it_is_told_at_once(queue, settings):
    settings.STATOR_TASKS = {"API_WAITING": 1}
    first, second = Waiting(given := token(), wait=2), Waiting(given)
    with waiting(first):
        second.run()
        assert (second.answer.status_code, second.answer.json()["error"]) == (503, "busy")
        assert second.answer["Retry-After"] == "1"
        queue.publish("resize", 7)
    assert len(first.claims) == 1


def test_thread_that_watches_outlasts_an_outage(queue, monkeypatch):
    monkeypatch.setattr(module, "LONG_DELAY", 0.1)
    monkeypatch.setattr(waiters, "wake", lambda queues=None: queues is not None and Waiters.wake(waiters, queues))
    failures = iter([DatabaseError("gone"), DatabaseError("gone")])

    def flaky(queues, using):
        for error in failures:
            raise error
        return with_ready(queues, using)

    monkeypatch.setattr(module, "with_ready", flaky)
    request = Waiting(token())
    with waiting(request):
        queue.publish("resize", 7)
    assert len(request.claims) == 1
