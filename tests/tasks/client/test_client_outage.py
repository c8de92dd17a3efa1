"""The client and a real server that goes away while a claim is held, and comes back or does not."""

import threading
from collections import defaultdict
from urllib.parse import urlsplit

import pytest

from tasks import client as module
from tasks.client import Client
from tasks.models import Queue, Task
from tests.processes import wait_until
from tests.sizes import PATIENCE
from tests.tasks.serving import server, token

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def queue(transactional_db):
    return Queue.objects.create(name="encode", actions_elsewhere=True, same_worker_again=True)


def test_claim_is_lost_by_the_own_clock_when_its_lease_ends_while_the_server_is_away(queue):
    queue.publish("resize")
    with server() as base:
        client = Client(base, token(), retries=0)
        [claim] = client.claim("encode", worker="bot-1", lease=4)
        assert not claim.lost
    with claim.heartbeating(every=0.1) as held:
        wait_until(lambda: held.lost)


ENDS = {
    "completed": lambda claim: claim.resolve({"ok": True}),
    "released": lambda claim: claim.release("busy"),
    "failed": lambda claim: claim.fail("broken"),
    "canceled": lambda claim: claim.cancel(),
}


def test_end_reaches_a_server_that_is_away_and_returns(queue, monkeypatch):
    tried, pause = defaultdict(list), threading.Event()

    def wait(seconds):
        tried[threading.current_thread().name].append(seconds)
        # Not as long as it asks for, which grows with each try.
        pause.wait(min(seconds, 0.2))

    monkeypatch.setattr(module.time, "sleep", wait)
    for name in ENDS:
        queue.publish("resize", data=name)
    with server() as base:
        claims = Client(base, token()).claim("encode", worker="bot-1", lease=120, limit=len(ENDS))
    threads = [
        threading.Thread(target=ENDS[claim.task["data"]], args=[claim], name=claim.task["data"], daemon=True)
        for claim in claims
    ]
    for thread in threads:
        thread.start()
    # Longer than other calls are tried again.
    wait_until(lambda: all(len(tried[name]) > 5 for name in ENDS) or not all(each.is_alive() for each in threads))
    with server(port=urlsplit(base).port):
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
    found = {claim.task["data"]: (Task.objects.get(pk=claim.task["id"]).status, claim.lost) for claim in claims}
    assert found == {
        "completed": ("completed", False), "released": ("pending", False), "failed": ("pending", False),
        "canceled": ("canceled", False),
    }  # fmt: skip
    assert max(max(pauses) for pauses in tried.values()) <= module.MAX_PAUSE
