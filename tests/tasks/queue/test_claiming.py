"""Claiming: which tasks a worker is given, in what order, and what is said of it."""

import pytest
from django.db import IntegrityError
from django.db.models import QuerySet

from tasks.exceptions import PublishRefused, TaskError
from tasks.models import Run, Task
from tests.tasks.making import claim_one, claimed, fresh, make_queue

pytestmark = pytest.mark.django_db(transaction=True)


def test_most_urgent_is_first_and_of_equals_the_first_published(queue):
    for number, priority in enumerate([5, 1, 5, -3, 1]):
        queue.publish(str(number), priority=priority)
    assert claimed(queue) == ["3", "1", "4", "0", "2"]


def test_of_one_priority_tasks_that_name_the_worker_come_first(queue):
    for _ in range(2):
        queue.publish("anyone", priority=1)
        queue.publish("mine", priority=1, worker_ids=["bot-2", "bot-1"])
    queue.publish("urgent", priority=0)
    # One by one in the order of the statement, then a batch in the same order.
    assert [claim_one(queue).task.action for _ in range(2)] == ["urgent", "mine"]
    assert claimed(queue) == ["mine", "anyone", "anyone"]


def test_only_named_workers_may_claim(queue):
    queue.publish("named", worker_ids=["bot-1"])
    for other in ("bot", "bot-11", "BOT-1", "1", "ot-1"):
        assert claimed(queue, other) == []
    assert claimed(queue, "bot-1") == ["named"]


def test_metadata_filters_and_the_order_stays(queue):
    for number, title in enumerate(["a", "b", "a", "a"]):
        queue.publish(str(number), priority=-number, metadata={"title": title, "size": number, "raw": number == 3})
    assert [c.task.action for c in queue.claim(worker="x", metadata={"title": "a"}, limit=2)] == ["3", "2"]
    assert claimed(queue, metadata={"title": "a", "size": 1}) == []
    assert claimed(queue, metadata={"title": "b", "size": 1}) == ["1"]
    assert claimed(queue, metadata={"raw": False}) == ["0"]


NAMED = "für x.y"
VALUES = (True, False, "true", "false", 1, 0, 1.0, "1", "0", 1.5, "1.5", "", "null", "[1]", "a", "A")


def test_metadata_of_one_value_is_not_that_of_another(queue):
    for each in VALUES:
        queue.publish("resize", metadata={NAMED: each})
    for value in VALUES:
        equal = [each for each in VALUES if each == value and isinstance(each, bool) == isinstance(value, bool)]
        found = [task.metadata[NAMED] for task in Task.objects.with_metadata({NAMED: value}).order_by("pk")]
        claims = queue.claim(worker="x", metadata={NAMED: value}, limit=100)
        # Compared as texts, since True equals 1 in Python.
        assert repr(found) == repr([claim.task.metadata[NAMED] for claim in claims]) == repr(equal)
        for claim in claims:
            claim.hand_back()


def test_metadata_is_found_in_order_wherever_it_is_in_the_line(monkeypatch):
    """Among the first of the line, beyond them, and in part."""
    for first in (2, 5, 100):
        monkeypatch.setattr("stator.db.sql.FIRST_ROWS", first)
        queue = make_queue(f"first {first}")
        queue.publish_many(
            {"action": str(n), "priority": n, "metadata": {"title": "a" if n in (3, 6, 8, 9) else "b"}}
            for n in range(12)
        )
        assert [c.task.action for c in queue.claim(worker="x", metadata={"title": "a"}, limit=3)] == ["3", "6", "8"]
        assert claimed(queue, metadata={"title": "a"}) == ["9"]
        assert claimed(queue, metadata={"title": "c"}) == []
        assert len(claimed(queue, metadata={"title": "b"})) == 8


def test_claim_says_who_has_the_task_since_when_and_until_when(queue):
    queue.publish("a")
    claim = claim_one(queue, lease=30)
    task, run = fresh(claim.task), Run.objects.get()
    assert (task.status, task.claimant, task.claimed_at) == ("running", "bot-1", task.state_attempted)
    assert (claim.attempt, claim.lease, task.attempts) == (1, 30, 1)
    assert (run.task, run.worker, run.token, run.lease_until) == (task, "bot-1", claim.token, task.state_locked_until)
    assert (run.outcome, run.ended, run.timed_out) == ("", None, False)


def test_database_refuses_a_claimant_without_a_time(queue):
    queue.publish("a")
    claim = claim_one(queue)
    with pytest.raises(IntegrityError):
        QuerySet(Task).filter(pk=claim.task.pk).update(state_locked_until=None)


def test_lease_is_what_was_asked_else_the_tasks_the_queues_or_the_settings():
    for task, own, asked, lease in (
        ({}, None, None, 60), ({}, 40, None, 40), ({"lease": 20}, 40, None, 20), ({"lease": 20}, 40, 10, 10),
        ({"lease": 20, "timeout": 5}, 40, 10, 5),
    ):  # fmt: skip
        queue = make_queue(f"of {lease} s", lease=own)
        queue.publish("a", **task)
        assert claim_one(queue, lease=asked).lease == pytest.approx(lease, abs=0.01)


def test_worker_needs_a_name(queue):
    for worker in ("", "a" * 101, "b\0t", "b\ud800t", None):
        with pytest.raises(TaskError, match="must be a text of 1 to 100 printable characters"):
            queue.claim(worker=worker)


NO_NUMBERS = (0, True, "1", float("nan"), 1e9)


REFUSED = [
    *({"lease": value} for value in (*NO_NUMBERS, 0.01)), *({"limit": value} for value in (*NO_NUMBERS, 1001, 1.5)),
    *({"wait": value} for value in (-1, True, 1e10, None)),
    *({"metadata": value} for value in ([], "a", {"1": 1}, {"a": None}, {"a": [1]}, {"a": "\0"})),
]  # fmt: skip


def test_claims_and_heartbeats_refuse_what_cannot_be(queue):
    queue.publish("resize")
    for options in REFUSED:
        with pytest.raises(TaskError, match=next(iter(options))) as refused:
            queue.claim(**{"worker": "bot-1", **options})
        assert not isinstance(refused.value, PublishRefused)
    assert fresh(Task.objects.get()).attempts == 0
    claim = claim_one(queue)
    for lease in (*NO_NUMBERS, 0.01):
        with pytest.raises(TaskError, match="lease") as refused:
            claim.heartbeat(lease)
        assert not isinstance(refused.value, PublishRefused)
    claim.resolve()


def test_claim_paused_queue_hands_out_nothing_and_what_runs_may_finish(queue):
    queue.publish("a")
    queue.publish("b")
    claim = claim_one(queue)
    queue.pause(claim=True)
    assert queue.publish("c").outcome == "inserted"
    assert queue.claim(worker="bot-2") == []
    claim.heartbeat()
    claim.resolve()
    queue.resume()
    assert len(queue.claim(worker="bot-2", limit=9)) == 2
