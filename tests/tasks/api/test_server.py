"""A real server, and programs in processes of their own that know its address, a token and HTTP, nothing else."""

import pytest

from tasks.client import Client, LeaseLost
from tasks.models import Queue, Task
from tests.tasks.serving import finished, server, start, token

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def base(transactional_db):
    Queue.objects.create(name="encode", http_actions=["resize"])
    with server() as address:
        yield address


def test_program_that_lost_its_lease_is_refused_and_another_resolves(base, tmp_path):
    code = """
call("POST", "queues/encode/tasks", {"action": "resize", "data": {"image": 7}, "key": "image-7"})
[mine] = call("POST", "queues/encode/claims", {"worker": "bot-1", "lease": 60})["claims"]
path = "tasks/%d/claim/" % mine["task"]["id"]
call("POST", path + "heartbeat", {"token": mine["token"], "lease": 0.5})
# It is stuck; its lease runs out meanwhile and another is given the task.
[theirs] = call("POST", "queues/encode/claims", {"worker": "bot-2", "lease": 30, "wait": 20})["claims"]
call("POST", path + "verify", {"token": mine["token"]})
call("POST", path + "heartbeat", {"token": mine["token"]})
call("POST", path + "resolve", {"token": mine["token"], "result": "late"})
call("POST", path + "resolve", {"token": theirs["token"], "result": "done"})
call("POST", path + "resolve", {"token": theirs["token"], "result": "twice"})
call("GET", "tasks/%d" % mine["task"]["id"])
"""
    answers = finished(start(code, base, token(), tmp_path))
    assert [answer["status"] for answer in answers] == [201, 200, 200, 200, 409, 409, 409, 200, 409, 200]
    assert {answers[n]["body"]["error"] for n in (4, 5, 6, 8)} == {"lease_lost"}
    seen = answers[-1]["body"]
    assert (seen["status"], seen["result"], seen["attempts"]) == ("completed", "done", 2)
    runs = [(run["worker"], run["outcome"], run["timed_out"]) for run in seen["runs"]]
    assert runs == [("bot-2", "succeeded", False), ("bot-1", "", True)]
    assert Task.objects.get().result == "done"


def test_client_class_against_the_server(base):
    """The requests of all its verbs are in the table of its tests."""
    client = Client(base, token())
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
