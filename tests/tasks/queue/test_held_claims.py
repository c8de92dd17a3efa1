"""What the holder of a claim may do while it holds the claim, and when the claim ends."""

from copy import copy
from itertools import product

import pytest
from asgiref.sync import async_to_sync
from django.db import OperationalError, connection
from django.db.models import QuerySet

from stator import claims
from stator.exceptions import LeaseLost
from stator.testing import steps
from tasks.exceptions import PublishRefused, TaskError
from tasks.models import Queue, Run, Task
from tests.stator.making import expire
from tests.tasks.making import claim_one, claimed, fresh, make_queue, pass_time

pytestmark = pytest.mark.django_db(transaction=True)


# What a holder may do


def test_resolved_task_is_completed_with_its_result(queue):
    queue.publish("a")
    claim = claim_one(queue)
    claim.resolve({"ok": True, 1: (2, None)})
    task, run, result = fresh(claim.task), Run.objects.get(), {"ok": True, "1": [2, None]}
    assert (task.status, task.result, task.claimant, task.attempts) == ("completed", result, None, 1)
    assert task.results == [result]
    assert (run.outcome, run.result) == ("succeeded", result)
    assert run.ended is not None


def test_steps_of_a_released_task_are_not_repeated_by_the_next_worker(queue):
    queue.publish("a")
    first = claim_one(queue)
    assert first.step("charge", lambda: {"receipt": 1}) == {"receipt": 1}
    assert first.record_step("mail", None) is None
    first.release()
    with pytest.raises(LeaseLost, match="is not held by this claim any more: the task is pending"):
        first.step("print", list)
    second = claim_one(queue, "bot-2")
    assert second.step("charge", lambda: pytest.fail("it is recorded")) == {"receipt": 1}
    assert async_to_sync(second.astep)("mail", lambda: pytest.fail("it is recorded")) is None
    expire(second.task)
    with pytest.raises(LeaseLost, match="its lease ran out"):
        second.step("print", list)
    assert steps(second.task) == {"charge": {"receipt": 1}, "mail": None}


def test_many_claims_are_resolved_at_once_each_with_its_result(queue, django_assert_max_num_queries):
    queue.publish_many({"action": "a"} for _ in range(30))
    held = queue.claim(worker="bot", limit=30)
    # The portable way to record takes a statement for each value.
    with django_assert_max_num_queries(10 if connection.vendor == "postgresql" else 50):
        assert queue.resolve_many({claim: {"n": n} for n, claim in enumerate(held)}) == []
    tasks = Task.objects.in_bulk([claim.task.pk for claim in held])
    assert [tasks[claim.task.pk].result for claim in held] == [{"n": n} for n in range(30)]
    assert {task.status for task in tasks.values()} == {"completed"}
    runs = Run.objects.filter(outcome="succeeded", ended__isnull=False)
    assert sorted(run.result["n"] for run in runs) == list(range(30))


@pytest.mark.parametrize("end", ["resolve_many", "fail_many"])
def test_none_some_and_all_of_many_claims_may_have_ended(queue, end):
    state = "completed" if end == "resolve_many" else "errored"
    for refused, with_steps in product((0, 1, 3), ("", "refused", "all")):
        queue.publish_many({"action": "a", "max_attempts": 1} for _ in range(3))
        held = queue.claim(worker="bot", limit=3)
        for claim in held[: 3 if with_steps == "all" else refused] if with_steps else []:
            claim.step("charge", lambda: 1)
        for claim in held[:refused]:
            claim.task.cancel(running=True)
        assert getattr(queue, end)(dict.fromkeys(held, "said")) == held[:refused]
        ended = [fresh(claim.task).state for claim in held]
        assert ended == ["canceled"] * refused + [state] * (3 - refused), (refused, with_steps)


def test_repeat_of_many_ends_has_the_same_answer(queue, monkeypatch):
    queue.publish_many({"action": "a"} for _ in range(4))
    held = queue.claim(worker="bot", limit=4)
    expire(held[0].task)
    results = dict.fromkeys(held, "done")

    def lose_the_answer(*arguments, **named):
        end(*arguments, **named)
        raise OperationalError("a node went away")

    end = claims.end
    with monkeypatch.context() as patched, pytest.raises(OperationalError):
        patched.setattr(claims, "end", lose_the_answer)
        queue.resolve_many(results)
    for _ in range(2):
        assert queue.resolve_many(results) == held[:1]
    assert [claim.ended for claim in held] == [False, True, True, True]
    assert queue.resolve_many(dict.fromkeys(held, "other")) == held


def test_repeat_of_many_failures_has_the_same_answer(queue):
    queue.publish_many({"action": "a", "max_attempts": 1 + number % 2} for number in range(4))
    held = queue.claim(worker="bot", limit=4)
    expire(held[0].task)
    for _ in range(2):
        assert queue.fail_many(dict.fromkeys(held, "no graphics card")) == held[:1]
        assert [claim.ended for claim in held] == [False, True, True, True]
    assert queue.resolve_many(dict.fromkeys(held)) == held
    assert queue.claim(worker="bot-2", limit=4) != []
    assert queue.fail_many(dict.fromkeys(held, "no graphics card")) == held[:1]


def test_released_task_is_for_another_worker(queue):
    queue.publish("a")
    claim_one(queue, "bot-1").release("no graphics card")
    task, run = Task.objects.get(), Run.objects.get()
    assert (task.status, task.rejected_by, task.attempts, task.claimant) == ("pending", ["bot-1"], 1, None)
    assert (run.outcome, run.reason) == ("released", "no graphics card")
    assert claimed(queue, "bot-1") == []
    assert claim_one(queue, "bot-2").attempt == 2


def test_failed_task_is_for_another_worker_and_its_error_is_kept_as_it_was(queue):
    queue.publish("a")
    try:
        raise RuntimeError("no\x00such image")
    except RuntimeError as error:
        claim_one(queue, "bot-1").fail(error)
    run = Run.objects.get()
    assert run.outcome == "failed"
    assert "RuntimeError: no\ufffdsuch image" in run.reason
    assert "Traceback" in run.reason or "raise RuntimeError" in run.reason
    assert Task.objects.get().state_failures == 1
    assert claimed(queue, "bot-1") == []
    claim_one(queue, "bot-2").fail("x" * 100_000)
    assert len(Run.objects.get(worker="bot-2").reason) < 10_000


def test_worker_may_have_a_task_again_where_the_queue_says_so():
    queue = make_queue(same_worker_again=True)
    queue.publish("a", max_attempts=3)
    for attempt in (1, 2, 3):
        claim = claim_one(queue)
        assert claim.attempt == attempt
        claim.fail("again")
    assert fresh(claim.task).status == "errored"


def test_worker_may_have_a_task_again_as_often_as_its_retries():
    queue = make_queue(worker_retries=1)
    queue.publish("a")
    claim_one(queue).fail("once")
    claim_one(queue).fail("twice")
    assert claimed(queue) == []
    assert claimed(queue, "bot-2") == ["a"]


@pytest.mark.parametrize("end", ["release", "fail"])
def test_task_runs_at_most_as_often_as_it_may(end):
    for own, queues, most in ((1, 3, 1), (None, 2, 2), (None, None, 5)):
        queue = make_queue(f"at most {most}", max_attempts=queues)
        task = queue.publish("a", max_attempts=own).task
        for number in range(most):
            getattr(claim_one(queue, f"bot-{number}"), end)("no")
        assert (fresh(task).status, fresh(task).attempts) == ("errored", most)
        assert queue.claim(worker="another") == []


def test_result_that_cannot_be_stored_is_refused_and_the_claim_stands(queue):
    queue.publish("a")
    claim = claim_one(queue)
    for result in ({1, 2}, float("nan"), "\x00", "x" * 300_000, object(), b"bytes"):
        with pytest.raises(TaskError, match=r"^.*result.*$") as refused:
            claim.resolve(result)
        assert len(str(refused.value)) < 500
        assert not isinstance(refused.value, PublishRefused)
    claim.verify()


def test_number_keeps_its_value_and_on_postgresql_not_always_its_type(queue):
    for given, kept in ((1e22, int), (1e15, float), (0.5, float), (-2e16, int), (10**20, int)):
        task = queue.publish("a", [given], metadata={"n": given}).task
        claim_one(queue).resolve({"n": given})
        found = fresh(task)
        for value in (found.data[0], found.metadata["n"], found.result["n"]):
            assert (value, type(value)) == (given, kept if connection.vendor == "postgresql" else type(given))


# Who holds no more


METHODS = {
    "verify": lambda claim: claim.verify(),
    "heartbeat": lambda claim: claim.heartbeat(),
    "resolve": lambda claim: claim.resolve({"late": True}),
    "release": lambda claim: claim.release("late"),
    "fail": lambda claim: claim.fail("late"),
    "cancel": lambda claim: claim.cancel("late"),
}

LOST = {
    "lease ran out": lambda queue, claim: expire(claim.task),
    "another worker holds it": lambda queue, claim: (expire(claim.task), claim_one(queue, "bot-2")),
    "the task is completed": lambda queue, claim: (expire(claim.task), claim_one(queue, "bot-2").resolve({"good": 1})),
    "the task is canceled": lambda queue, claim: claim.task.cancel(running=True),
    "the task is pending": lambda queue, claim: claim.release(),
    "the task is gone": lambda queue, claim: Task.objects.all().delete(),
}


def test_late_holder_is_told_why_and_changes_nothing(queue):
    for why, lose in LOST.items():
        queue.publish("a")
        claim = claim_one(queue)
        lose(queue, claim)
        before = list(Task.objects.values()), list(Run.objects.values())
        for name, method in METHODS.items():
            with pytest.raises(LeaseLost, match=why):
                method(copy(claim))
            assert (list(Task.objects.values()), list(Run.objects.values())) == before, (why, name)
        Task.objects.all().delete()


def test_task_whose_lease_ran_out_is_taken_over(queue):
    queue.publish("a", max_attempts=2)
    first = claim_one(queue, "bot-1")
    expire(first.task)
    second = claim_one(queue, "bot-2")
    assert (second.attempt, fresh(second.task).claimant) == (2, "bot-2")
    assert Run.objects.get(worker="bot-1").timed_out
    second.resolve()
    assert (fresh(second.task).status, fresh(second.task).attempts) == ("completed", 2)


def test_task_that_lost_every_lease_is_errored_and_not_quarantined():
    queue = make_queue(max_attempts=5)
    task = queue.publish("a").task
    for number in range(5):
        claim_one(queue, f"bot-{number}")
        expire(task)
    assert queue.claim(worker="another") == []
    assert fresh(task).status == "errored"


def test_heartbeat_extends_the_lease_but_not_past_the_timeout(queue):
    queue.publish("a", lease=100, timeout=300)
    claim = claim_one(queue)
    assert claim.lease == pytest.approx(100, abs=10)
    pass_time(90)
    claim.heartbeat()
    assert claim.lease == pytest.approx(100, abs=10)
    pass_time(90)
    claim.heartbeat(600)
    assert claim.lease == pytest.approx(120, abs=20)
    assert Run.objects.get().lease_until == fresh(claim.task).state_locked_until
    pass_time(130)
    with pytest.raises(LeaseLost):
        claim.heartbeat()


def test_heartbeat_follows_the_configuration_of_its_queue(queue):
    quick = make_queue("quick", lease=40)
    for each in (queue, quick):
        each.publish("a")
    claim, quick_one = claim_one(queue), claim_one(quick)
    Queue.objects.filter(pk=queue.pk).update(lease=250)
    for held, seconds in ((claim, 250), (quick_one, 40)):
        held.heartbeat()
        assert held.lease == pytest.approx(seconds, rel=0.08)


def test_worker_that_is_no_longer_allowed_loses_its_task_at_the_next_heartbeat(queue):
    task = queue.publish("a").task
    claim = claim_one(queue)
    QuerySet(Task).update(worker_ids=["bot-2"])
    with pytest.raises(LeaseLost, match="for other workers"):
        claim.heartbeat()
    assert (fresh(task).status, fresh(task).rejected_by) == ("pending", [])
    QuerySet(Task).update(worker_ids=["bot-1", "bot-2"])
    # It has rejected nothing, so it may have the task again.
    assert claim_one(queue, "bot-1").attempt == 1


def test_worker_holds_one_task_where_the_queue_says_so():
    queue = make_queue(one_per_worker=True)
    queue.publish_many({"action": str(number)} for number in range(3))
    (claim,) = queue.claim(worker="bot-1", limit=3)
    assert queue.claim(worker="bot-1", limit=3) == []
    assert len(queue.claim(worker="bot-2", limit=3)) == 1
    claim.resolve()
    assert len(queue.claim(worker="bot-1", limit=3)) == 1


def test_heartbeat_beyond_a_timeout_that_was_made_shorter_is_too_late(queue):
    task = queue.publish("a").task
    claim = claim_one(queue)
    pass_time(30)
    Queue.objects.update(timeout=20)
    with pytest.raises(LeaseLost, match="its lease ran out"):
        claim.heartbeat()
    with pytest.raises(LeaseLost):
        claim.verify()
    assert claim_one(queue, "bot-2").task == task


def test_end_changes_no_run_but_that_of_its_claim():
    """The claims of one statement share their token, and a task has a run for each of its claims."""
    queue = make_queue(same_worker_again=True)
    for end, outcome in (("resolve", ["succeeded"]), ("release", ["released"]), ("hand_back", [])):
        for action in "ab":
            queue.publish(action)
        first, second = queue.claim(worker="bot-1", limit=2)
        first.release("busy")
        again = claim_one(queue)
        assert (again.task.pk, second.token) == (first.task.pk, first.token)
        others = Run.objects.exclude(task=again.task, token=again.token).order_by("pk")
        before = list(others.values())
        getattr(again, end)()
        assert list(others.values()) == before
        ended = Run.objects.filter(task=again.task, token=again.token).values_list("outcome", flat=True)
        assert list(ended) == outcome
        Task.objects.all().delete()
