"""Claims that wait under ASGI: they hold no thread, and are otherwise as under WSGI."""

import asyncio
import threading

import pytest
from asgiref.sync import sync_to_async
from django.test import AsyncClient

from tasks.extensions.api.models import Consumer
from tasks.models import Run
from tasks.queue.waiting import waiters
from tests.processes import wait_until
from tests.sizes import PATIENCE
from tests.tasks.serving import token

pytestmark = pytest.mark.django_db(transaction=True)

WAITING = 12


@pytest.fixture(autouse=True)
def no_watch_is_left():
    yield
    wait_until(lambda: not [thread for thread in threading.enumerate() if thread.name == "tasks-waiting"])


def asked(given, *, wait=20, method="post", **body):
    """The answer to a request for a claim, as a coroutine."""
    body = {"worker": "bot-1", "wait": wait, **body}
    headers = {"Authorization": f"Bearer {given}"}
    ask = getattr(AsyncClient(), method)
    return ask("/api/queues/encode/claims", body, content_type="application/json", headers=headers)


async def until(condition):
    """Return once the condition holds; the test's own time limit ends it otherwise."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.01)


def test_many_wait_without_a_thread_for_each_and_all_are_woken(queue):
    given = token()

    async def run():
        await asked(given, wait=0)
        before = threading.active_count()
        requests = [asyncio.ensure_future(asked(given, worker=f"bot-{number}")) for number in range(WAITING)]
        await until(lambda: len(waiters) == WAITING)
        # One watches the database for all.
        held = threading.active_count() - before
        await sync_to_async(queue.publish_many)([{"action": "resize", "data": 7}] * WAITING)
        return held, await asyncio.gather(*requests)

    held, answers = asyncio.run(run())
    assert held <= 2
    claims = [answer.json()["claims"] for answer in answers]
    assert [len(each) for each in claims] == [1] * WAITING
    assert len({each["task"]["id"] for [each] in claims}) == WAITING
    assert {each["task"]["claimant"] for [each] in claims} == set(Run.objects.values_list("worker", flat=True))


def test_token_that_is_revoked_meanwhile_gets_nothing(queue):
    given = token()

    async def run():
        request = asyncio.ensure_future(asked(given))
        await until(lambda: len(waiters) == 1)
        await sync_to_async(Consumer.objects.update)(enabled=False)
        await sync_to_async(queue.publish)("resize", 7)
        return await request

    assert asyncio.run(run()).status_code == 401
    assert not Run.objects.exists()


def test_beyond_the_limit_it_is_told_at_once(queue, settings):
    settings.STATOR_TASKS = {"API_WAITING": 0}
    answer = asyncio.run(asked(token()))
    assert (answer.status_code, answer.json()["error"], answer["Retry-After"]) == (503, "busy", "1")


@pytest.mark.parametrize(
    ("body", "status"), [({"limit": 0}, 422), ({"worker": ""}, 422), ({"more": 1}, 422), ({"wait": 0}, 200)]
)
def test_what_is_wrong_is_refused_as_without_waiting(queue, body, status):
    assert asyncio.run(asked(token(), **body)).status_code == status


def test_other_methods_and_tokens_are_refused(queue):
    answer = asyncio.run(asked(token(), method="put"))
    assert (answer.status_code, answer["Allow"], answer.json()["error"]) == (405, "POST", "method_not_allowed")
    assert asyncio.run(asked("none")).status_code == 401
