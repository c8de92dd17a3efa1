"""How many statements one request takes, with its authorization and its answer."""

from functools import partial

import pytest
from django.db import connection

from tasks.extensions.api.models import Consumer
from tasks.models import Queue, Task
from tasks.queue import claiming
from tasks.rows import queues
from tests.stator.making import raw
from tests.tasks.serving import token

pytestmark = pytest.mark.django_db(transaction=True)

# At most, for each request: on PostgreSQL, on SQLite, and on MariaDB, where a claim finds rows before it locks them.
MAX_LOOKUPS = {
    "publish": (2, 6, 6), "claim": (2, 10, 11), "heartbeat": (2, 6, 6), "verify": (2, 2, 2), "resolve": (2, 12, 12),
    "fail": (2, 15, 15), "release": (2, 15, 15), "hand back": (2, 12, 12),
}  # fmt: skip

GIVING_UP = {"fail": {"error": "no such image"}, "release": {"reason": "no disk"}, "hand back": {"begun": False}}
VERBS = {"hand back": "release"}


@pytest.fixture
def ask(call):
    given = token()

    def asked(path, **body):
        status, found = call("POST", path, body, given)
        assert status in (200, 201), found
        return found

    return asked


def published(ask):
    return ask("queues/encode/tasks", action="resize", data={"image": 7})["task"]


def claimed(ask):
    [claim] = ask("queues/encode/claims", worker="bot-1")["claims"]
    return claim


def ended(ask, claim, verb="resolve", **body):
    return ask(f"tasks/{claim['task']['id']}/claim/{verb}", token=claim["token"], **body)


@pytest.fixture
def warm(monkeypatch, ask, queue):
    """A queue with which this process has done everything before, and whose claimants are noted for long."""
    for module in (queues, claiming):
        monkeypatch.setattr(module, "SEEN_EVERY", 3600.0)
    for _ in range(2):
        published(ask)
        claim = claimed(ask)
        ended(ask, claim, "heartbeat")
        ended(ask, claim, result={"ok": True})
        for name, body in GIVING_UP.items():
            published(ask)
            ended(ask, claimed(ask), VERBS.get(name, name), **body)
            Task.objects.filter(state="pending").cancel()


def test_statements_of_a_cycle_are_few(count, ask, warm):
    found = {}
    found["publish"], _ = count(lambda: published(ask))
    found["claim"], claim = count(lambda: claimed(ask))
    found["heartbeat"], _ = count(lambda: ended(ask, claim, "heartbeat"))
    found["verify"], _ = count(lambda: ended(ask, claim, "verify"))
    found["resolve"], _ = count(lambda: ended(ask, claim, result={"ok": True}))
    for name, body in GIVING_UP.items():
        published(ask)
        claim = claimed(ask)
        found[name], _ = count(partial(ended, ask, claim, VERBS.get(name, name), **body))
        Task.objects.filter(state="pending").cancel()
    column = ["postgresql", "sqlite", "mysql"].index(connection.vendor)
    taken = {name: len(statements) for name, statements in found.items()}
    assert taken.keys() == MAX_LOOKUPS.keys()
    assert {name for name, count in taken.items() if count > MAX_LOOKUPS[name][column]} == set(), found


def test_answer_to_an_end_is_the_task_as_it_is_stored(call, ask, warm):
    ends = {"resolve": {"result": {"b": 1, "a": [1.5, None]}}, "cancel": {"reason": "twice"}, **GIVING_UP}
    for verb, body in ends.items():
        Task.objects.filter(state="pending").cancel()
        published(ask)
        told = ended(ask, claimed(ask), VERBS.get(verb, verb), **body)["task"]
        _, stored = call("GET", f"tasks/{told['id']}", token=token(verb))
        assert {name: stored[name] for name in told} == told


def test_revoked_token_and_removed_queue_count_at_once(call, queue):
    other = Queue.objects.create(name="other", actions_elsewhere=True)
    given = token("limited", queues=[queue, other])
    body = {"action": "thumbnail"}
    assert call("POST", "queues/encode/tasks", body, given)[0] == 201
    [consumer] = Consumer.objects.filter(name="limited")
    consumer.queues.remove(queue)
    assert call("POST", "queues/encode/tasks", body, given)[0] == 403
    assert call("POST", "queues/other/tasks", body, given)[0] == 201
    task = Task.objects.get(queue=queue)
    assert call("POST", f"tasks/{task.pk}/cancel", None, given)[0] == 404
    raw(Consumer).update(may_publish=False)
    assert call("POST", "queues/other/tasks", body, given)[0] == 403
    raw(Consumer).update(enabled=False)
    assert call("POST", "queues/other/tasks", body, given)[0] == 401


@pytest.mark.postgresql
def test_connection_that_the_server_closed_is_replaced(call, queue, ask, warm):
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        [pid] = cursor.fetchone()
    other = connection.copy()
    try:
        with other.cursor() as cursor:
            cursor.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    finally:
        other.close()
    assert published(ask)["status"] == "pending"
