"""The HTTP API with queues in several databases: numbers of tasks alone tell programs' requests where to go."""

import pytest

from tasks.api.rate_limits import rates
from tasks.queue import waiting
from tasks.sharding.task_ids import BITS
from tests.tasks.api.test_waiting import MAX_WAIT, Waiting
from tests.tasks.api.test_waiting import waiting as while_waiting
from tests.tasks.making import make_queue
from tests.tasks.serving import token
from tests.tasks.sharding.conftest import all_awake
from tests.tasks.sharding.databases import BOTH, away, every, publish_into, values_of

__all__ = ["all_awake"]

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


@pytest.fixture(autouse=True)
def fresh_rates(settings):
    rates.forget()
    # The test client says that it has no threads.
    settings.STATOR_TASKS = {"API_WAITING": 20}


@pytest.fixture
def queue():
    return make_queue(databases=BOTH, http_actions=["resize"])


@pytest.fixture
def given(queue):
    return token(queues=[queue])


def test_task_of_another_database_is_published_claimed_and_ended(call, given):
    (key,) = values_of("other")
    status, found = call("POST", "queues/encode/tasks", {"action": "resize", "key": key}, given)
    assert (status, found["outcome"]) == (201, "inserted")
    pk = found["task"]["id"]
    assert 1 << BITS < pk < 2**53
    assert call("POST", "queues/encode/tasks", {"action": "resize", "key": key}, given)[1]["outcome"] == "matched"
    status, found = call("POST", "queues/encode/claims", {"worker": "bot-1", "limit": 5}, given)
    [claim] = found["claims"]
    held = {"token": claim["token"]}
    assert claim["task"]["id"] == pk
    assert call("POST", f"tasks/{pk}/claim/verify", held, given)[0] == 200
    assert call("POST", f"tasks/{pk}/claim/heartbeat", held | {"lease": 30}, given)[0] == 200
    for _ in range(2):
        # As the first time, for who has lost the answer.
        status, found = call("POST", f"tasks/{pk}/claim/resolve", held | {"result": 7}, given)
        assert (status, found["task"]["status"], found["task"]["result"]) == (200, "completed", 7)
    assert call("POST", f"tasks/{pk}/claim/fail", held | {"error": "no"}, given)[1]["error"] == "lease_lost"
    status, found = call("GET", f"tasks/{pk}", None, given)
    assert [(run["worker"], run["outcome"]) for run in found["runs"]] == [("bot-1", "succeeded")]
    assert [(task._state.db, task.pk) for task in every()] == [("other", pk)]


def test_search_goes_through_all_page_by_page(call, given, queue):
    queue.publish_many({"action": "resize", "metadata": {"n": number}} for number in range(9))
    make_queue("mine").publish("resize")
    for filters in ("", "queue=encode&"):
        seen, after = [], "0"
        while after is not None:
            status, found = call("GET", f"tasks?{filters}limit=4&after={after}", None, given)
            assert status == 200
            seen += [task["id"] for task in found["tasks"]]
            after = found["next"]
        assert seen == sorted(task.pk for task in every(queue__name="encode"))
    assert len(call("GET", "tasks?status=pending", None, given)[1]["tasks"]) == 9
    assert len(call("GET", 'tasks?metadata={"n":4}', None, given)[1]["tasks"]) == 1
    assert len(call("GET", "tasks", None, token("all"))[1]["tasks"]) == 10


def test_token_for_other_queues_finds_nothing(call, queue):
    task = publish_into(queue, "other")
    others = token("others", queues=[make_queue("mine")])
    for method, path in (("GET", f"tasks/{task.pk}"), ("POST", f"tasks/{task.pk}/cancel")):
        assert call(method, path, None, others)[0] == 404
    assert call("GET", "tasks", None, others)[1]["tasks"] == []


def test_database_that_is_away_is_answered_with_503(call, given, queue):
    task = publish_into(queue, "other")
    (key,) = values_of("other")
    with away("other"):
        status, found = call("POST", "queues/encode/tasks", {"action": "resize", "key": key}, given)
        assert (status, found["error"]) == (503, "unavailable")
        assert "database 'other' of queue encode cannot be used" in found["detail"]
        assert call("GET", f"tasks/{task.pk}", None, given)[0] == 503
        queue.publish("resize", key=values_of("default")[0])
        assert len(call("POST", "queues/encode/claims", {"worker": "bot-1", "limit": 5}, given)[1]["claims"]) == 1


@pytest.mark.parametrize("alias", BOTH)
def test_waiting_claim_is_woken_by_any_database(queue, given, monkeypatch, alias):
    # As if the signal had been sent in another process.
    wake = waiting.Waiters.wake
    monkeypatch.setattr(
        waiting.waiters, "wake", lambda queues=None: queues is not None and wake(waiting.waiters, queues)
    )
    request = Waiting(given)
    with while_waiting(request):
        task = publish_into(queue, alias)
    assert [claim["task"]["id"] for claim in request.claims] == [task.pk]
    assert request.seconds < MAX_WAIT / 2
