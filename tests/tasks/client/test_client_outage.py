"""The client and a real server that goes away while a claim is held, and comes back or does not."""

import threading
from urllib.parse import urlsplit

import pytest

from tasks import client as module
from tasks.client import Client, LeaseLost
from tasks.models import Queue
from tests.processes import wait_until
from tests.tasks.making import fresh
from tests.tasks.serving import server, token

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def queue(transactional_db):
    return Queue.objects.create(name="encode", actions_elsewhere=True, same_worker_again=True)


def test_claim_is_lost_by_the_own_clock_when_its_lease_ends_while_the_server_is_away(queue):
    queue.publish("resize")
    with server() as base:
        client = Client(base, token(), retries=0)
        [claim] = client.claim("encode", worker="bot-1", lease=5)
        assert not claim.lost
    with claim.heartbeating(every=0.1) as held:
        wait_until(lambda: held.lost)


def test_claim_whose_lease_ended_while_the_server_was_away_stays_lost(queue):
    task = queue.publish("resize").task
    with server() as base:
        client = Client(base, token())
        [claim] = client.claim("encode", worker="bot-1", lease=0.5)
    wait_until(lambda: claim.lost)
    with server(port=urlsplit(base).port):
        for end in (claim.heartbeat, claim.resolve):
            with pytest.raises(LeaseLost):
                end()
            assert claim.lost
    assert fresh(task).status != "completed"


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (lambda claim: claim.resolve({"ok": True}), "completed"),
        (lambda claim: claim.release("busy"), "pending"),
        (lambda claim: claim.fail("broken"), "pending"),
        (lambda claim: claim.cancel(), "canceled"),
    ],
    ids=["resolve", "release", "fail", "cancel"],
)
def test_end_reaches_a_server_that_is_away_and_returns(queue, monkeypatch, end, status):
    tried, pause = [], threading.Event()
    monkeypatch.setattr(module.time, "sleep", lambda seconds: tried.append(seconds) or pause.wait(seconds))
    task = queue.publish("resize").task
    with server() as base:
        [claim] = Client(base, token()).claim("encode", worker="bot-1", lease=120)
    ended = threading.Thread(target=end, args=[claim], daemon=True)
    ended.start()
    # Longer than other calls are tried again.
    wait_until(lambda: len(tried) > 5 or not ended.is_alive())
    with server(port=urlsplit(base).port):
        ended.join(60)
        assert not ended.is_alive()
    assert (fresh(task).status, claim.lost) == (status, False)
    assert max(tried) <= module.MAX_PAUSE
