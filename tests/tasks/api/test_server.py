"""A real server, and the client."""

import pytest

from tasks.client import Client, LeaseLost
from tests.tasks.serving import server, token

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def client(transactional_db):
    with server() as address:
        yield Client(address, token())


def test_client_class_against_the_server(client):
    """The requests of all its verbs are in the table of its tests."""
    assert client.create_queue("resize", lease=20, max_attempts=2, actions_elsewhere=True)["lease"] == 20
    many = client.publish_many("resize", [{"action": "a", "metadata": {"title": str(n)}} for n in range(5)])
    assert [result["outcome"] for result in many] == ["inserted"] * 5
    assert len(list(client.tasks(queue="resize", limit=2))) == 5
    [found] = client.tasks(metadata={"title": "3"})
    assert found["id"] == many[3]["task"]["id"]
    claims = client.claim("resize", worker="bot-1", limit=4, lease=5)
    with claims[0].heartbeating(every=0.05) as held:
        held.verify()
    held.resolve({"ok": True})
    assert client.task(held.task["id"])["result"] == {"ok": True}
    with pytest.raises(LeaseLost):
        held.heartbeat()
    # It was ended in time.
    assert (held.ended, held.lost) == (True, False)
    claims[1].release("busy")
    claims[2].fail("broken")
    claims[3].cancel()
    statuses = [task["status"] for task in client.tasks(queue="resize")]
    assert statuses == ["completed", "pending", "pending", "canceled", "pending"]
