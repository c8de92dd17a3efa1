"""Claiming, and what a holder may do: only while it holds, and with the end that the table of statuses allows."""

import pytest
from asgiref.sync import async_to_sync
from django.db import IntegrityError, connection
from django.db.models import QuerySet

from stator.exceptions import LeaseLost, ProtectedState
from stator.models import History
from tasks.exceptions import MoveRefused, TaskError
from tasks.models import Queue, Run, Task
from tests.stator.making import change, expire, row
from tests.tasks.making import STATUSES, claim_one, fresh, make_queue, make_task, pass_time

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def queue():
    return make_queue()


def claimed(queue, worker="bot-1", **options):
    return [claim.task.action for claim in queue.claim(worker=worker, limit=100, **options)]


# Which and in what order


def test_most_urgent_is_first_and_of_equals_the_first_published(queue):
    for number, priority in enumerate([5, 1, 5, -3, 1]):
        queue.publish(str(number), priority=priority)
    assert claimed(queue) == ["3", "1", "4", "0", "2"]


def test_of_one_priority_tasks_that_name_the_worker_come_first(queue):
    queue.publish("anyone", priority=1)
    queue.publish("mine", priority=1, worker_ids=["bot-2", "bot-1"])
    queue.publish("urgent", priority=0)
    assert claimed(queue) == ["urgent", "mine", "anyone"]


def test_only_named_workers_may_claim(queue):
    queue.publish("named", worker_ids=["bot-1"])
    for other in ("bot", "bot-11", "BOT-1", "1", "ot-1"):
        assert claimed(queue, other) == []
    assert claimed(queue, "bot-1") == ["named"]


def test_claim_takes_no_more_than_its_limit_and_nothing_twice(queue):
    for number in range(5):
        queue.publish(str(number), priority=number)
    assert [claim.task.action for claim in queue.claim(worker="a", limit=2)] == ["0", "1"]
    assert [claim.task.action for claim in queue.claim(worker="b", limit=2)] == ["2", "3"]
    assert [claim.task.action for claim in queue.claim(worker="c", limit=2)] == ["4"]
    assert queue.claim(worker="d", limit=2) == []


def test_claim_is_of_one_queue(queue):
    make_queue("other").publish("elsewhere")
    assert claimed(queue) == []


def test_metadata_filters_and_the_order_stays(queue):
    for number, title in enumerate(["a", "b", "a", "a"]):
        queue.publish(str(number), priority=-number, metadata={"title": title, "size": number, "raw": number == 3})
    assert [c.task.action for c in queue.claim(worker="x", metadata={"title": "a"}, limit=2)] == ["3", "2"]
    assert claimed(queue, metadata={"title": "a", "size": 1}) == []
    assert claimed(queue, metadata={"title": "b", "size": 1}) == ["1"]
    assert claimed(queue, metadata={"raw": False}) == ["0"]


@pytest.mark.parametrize("first", [2, 5, 100])
def test_metadata_is_found_in_order_wherever_it_is_in_the_line(queue, monkeypatch, first):
    """Among the first of the line, beyond them, and in part."""
    monkeypatch.setattr("stator.db.postgresql.FIRST_ROWS", first)
    for number in range(12):
        queue.publish(str(number), priority=number, metadata={"title": "a" if number in (3, 6, 8, 9) else "b"})
    assert [c.task.action for c in queue.claim(worker="x", metadata={"title": "a"}, limit=3)] == ["3", "6", "8"]
    assert claimed(queue, metadata={"title": "a"}) == ["9"]
    assert claimed(queue, metadata={"title": "c"}) == []
    assert len(claimed(queue, metadata={"title": "b"})) == 8


@pytest.mark.parametrize("name", ["a__b", "contains", "a b", "ü", "it's", "in", "x.y"])
def test_metadata_may_have_any_name(queue, name):
    queue.publish("it", metadata={name: "ja"})
    queue.publish("other", metadata={"other": "ja"})
    assert claimed(queue, metadata={name: "ja"}) == ["it"]
    assert [task.action for task in Task.objects.with_metadata({name: "ja"})] == ["it"]


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


@pytest.mark.parametrize(
    ("task", "own", "asked", "lease"),
    [({}, None, None, 60), ({}, 40, None, 40), ({"lease": 20}, 40, None, 20), ({"lease": 20}, 40, 10, 10),
     ({"lease": 20, "timeout": 5}, 40, 10, 5)],
)  # fmt: skip
def test_lease_is_what_was_asked_else_the_tasks_the_queues_or_the_settings(task, own, asked, lease):
    queue = make_queue(lease=own)
    queue.publish("a", **task)
    assert claim_one(queue, lease=asked).lease == pytest.approx(lease, abs=0.01)


def test_queues_configuration_of_now_decides(queue):
    queue.publish("a")
    stale = Queue.objects.get()
    Queue.objects.update(lease=7)
    assert claim_one(stale).lease == pytest.approx(7, abs=0.01)


@pytest.mark.parametrize("worker", ["", " x", "a" * 101, "bot\n", 'b"t', "b\\t", None, 7, "böt"])
def test_worker_needs_a_name(queue, worker):
    with pytest.raises(TaskError, match="must be a name"):
        queue.claim(worker=worker)


@pytest.mark.parametrize("options", [{"limit": 0}, {"limit": 1001}, {"limit": True}, {"lease": 0}, {"lease": 1e9}])
def test_claim_refuses_what_it_cannot_do(queue, options):
    with pytest.raises(TaskError, match=next(iter(options))):
        queue.claim(worker="bot-1", **options)


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


# What a holder may do


def test_resolved_task_is_completed_with_its_result(queue):
    queue.publish("a")
    claim = claim_one(queue)
    claim.resolve({"ok": True})
    task, run = fresh(claim.task), Run.objects.get()
    assert (task.status, task.result, task.claimant, task.attempts) == ("completed", {"ok": True}, None, 1)
    assert (run.outcome, run.result) == ("succeeded", {"ok": True})
    assert run.ended is not None


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


def test_claims_that_are_held_no_more_are_told_among_many_that_are(queue):
    queue.publish_many({"action": "a"} for _ in range(4))
    held = queue.claim(worker="bot", limit=4)
    held[0].resolve("first")
    put_off = held[1].task
    expire(put_off)
    assert queue.resolve_many(dict.fromkeys(held, "second")) == held[:2]
    results = Task.objects.filter(state="completed").values_list("result", flat=True)
    assert sorted(results) == ["first", "second", "second"]
    assert fresh(put_off).status == "running"


def test_results_that_no_json_has_are_refused_before_any_is_written(queue):
    queue.publish_many({"action": "a"} for _ in range(2))
    held = queue.claim(worker="bot", limit=2)
    with pytest.raises(TaskError):
        queue.resolve_many({held[0]: 1, held[1]: object()})
    assert {fresh(claim.task).status for claim in held} == {"running"}
    assert queue.resolve_many({}) == []


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


def test_canceled_by_its_holder(queue):
    queue.publish("a")
    claim = claim_one(queue)
    claim.cancel("not wanted any more")
    assert fresh(claim.task).status == "canceled"
    assert (Run.objects.get().outcome, Run.objects.get().reason) == ("canceled", "not wanted any more")


@pytest.mark.parametrize("end", ["release", "fail"])
@pytest.mark.parametrize(("own", "queues", "most"), [(1, 3, 1), (None, 2, 2), (None, None, 5)])
def test_task_runs_at_most_as_often_as_it_may(end, own, queues, most):
    queue = make_queue(max_attempts=queues)
    task = queue.publish("a", max_attempts=own).task
    for number in range(most):
        getattr(claim_one(queue, f"bot-{number}"), end)("no")
    assert (fresh(task).status, fresh(task).attempts) == ("errored", most)
    assert queue.claim(worker="another") == []


@pytest.mark.parametrize("result", [{1, 2}, float("nan"), "\x00", "x" * 300_000, object()])
def test_result_that_cannot_be_kept_is_refused_and_the_claim_stands(queue, result):
    queue.publish("a")
    claim = claim_one(queue)
    with pytest.raises(TaskError, match="result"):
        claim.resolve(result)
    claim.verify()


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


@pytest.mark.parametrize("why", LOST)
@pytest.mark.parametrize("method", METHODS)
def test_late_holder_is_told_why_and_changes_nothing(queue, method, why):
    queue.publish("a")
    claim = claim_one(queue)
    LOST[why](queue, claim)
    before = list(Task.objects.values()), list(Run.objects.values())
    with pytest.raises(LeaseLost, match=why):
        METHODS[method](claim)
    assert (list(Task.objects.values()), list(Run.objects.values())) == before


def test_task_whose_lease_ran_out_is_taken_over(queue):
    queue.publish("a", max_attempts=2)
    first = claim_one(queue, "bot-1")
    expire(first.task)
    second = claim_one(queue, "bot-2")
    assert (second.attempt, fresh(second.task).claimant) == (2, "bot-2")
    assert Run.objects.get(worker="bot-1").timed_out
    second.resolve()
    assert fresh(second.task).status == "completed"


def test_task_that_lost_every_lease_is_errored_and_not_quarantined():
    queue = make_queue(max_attempts=5)
    task = queue.publish("a").task
    for number in range(5):
        claim_one(queue, f"bot-{number}")
        expire(task)
    assert queue.claim(worker="another") == []
    assert fresh(task).status == "errored"


def test_heartbeat_extends_the_lease_but_not_past_the_timeout(queue):
    queue.publish("a", lease=10, timeout=30)
    claim = claim_one(queue)
    assert claim.lease == pytest.approx(10, abs=0.1)
    pass_time(9)
    claim.heartbeat()
    assert claim.lease == pytest.approx(10, abs=1)
    pass_time(9)
    claim.heartbeat(60)
    assert claim.lease == pytest.approx(12, abs=1)
    assert Run.objects.get().lease_until == fresh(claim.task).state_locked_until
    pass_time(13)
    with pytest.raises(LeaseLost):
        claim.heartbeat()


def test_heartbeat_follows_the_configuration(queue):
    queue.publish("a")
    claim = claim_one(queue)
    Queue.objects.update(lease=25)
    claim.heartbeat()
    assert claim.lease == pytest.approx(25, abs=1)


def test_heartbeat_keeps_the_lease_that_was_asked_for(queue):
    queue.publish("a", lease=5)
    claim = claim_one(queue, lease=600)
    again = Task.find_claim(claim.task.pk, claim.token)
    again.heartbeat()
    assert again.lease == pytest.approx(600, abs=1)
    again.heartbeat(20)
    pass_time(15)
    claim.heartbeat()
    assert claim.lease == pytest.approx(20, abs=1)


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


def test_worker_that_is_no_longer_allowed_loses_its_task_at_the_next_heartbeat(queue):
    task = queue.publish("a").task
    claim = claim_one(queue)
    QuerySet(Task).update(worker_ids=["bot-2"])
    with pytest.raises(LeaseLost, match="for other workers"):
        claim.heartbeat()
    assert fresh(task).status == "pending"
    assert claim_one(queue, "bot-2").attempt == 1


def test_claim_is_found_by_its_token(queue):
    queue.publish("a")
    claim = claim_one(queue)
    again = Task.find_claim(claim.task.pk, claim.token)
    assert (again.worker, again.attempt) == ("bot-1", 1)
    again.resolve()
    with pytest.raises(LeaseLost):
        Task.find_claim(claim.task.pk, claim.token)


def test_tasks_that_were_claimed_together_end_each_by_itself(queue):
    queue.publish_many({"action": str(number)} for number in range(3))
    first, second, third = queue.claim(worker="bot-1", limit=3)
    first.resolve()
    second.fail("no")
    assert [run.outcome for run in Run.objects.order_by("task")] == ["succeeded", "failed", ""]
    third.verify()


def test_worker_holds_one_task_where_the_queue_says_so():
    queue = make_queue(one_per_worker=True)
    queue.publish_many({"action": str(number)} for number in range(3))
    (claim,) = queue.claim(worker="bot-1", limit=3)
    assert queue.claim(worker="bot-1", limit=3) == []
    assert len(queue.claim(worker="bot-2", limit=3)) == 1
    claim.resolve()
    assert len(queue.claim(worker="bot-1", limit=3)) == 1


# The table of statuses

ACTS = {
    "invisible": {"cancel": "canceled", "time": "pending"},
    "pending": {"claim": "running", "cancel": "canceled"},
    "running": {
        "resolve": "completed", "release": "pending", "fail": "pending", "holder cancels": "canceled",
        "lease runs out": "pending", "last release": "errored", "last fail": "errored",
        "last lease runs out": "errored",
    },
    "completed": {},
    "canceled": {},
    "errored": {"requeue": "pending"},
}  # fmt: skip


def _act(act, queue, task, claim):
    """Try it, by whichever way there is."""
    if act == "cancel":
        task.cancel()
    elif act == "requeue":
        task.requeue()
    elif act == "time":
        pass_time(61)
        queue.claim(worker="nobody", metadata={"none": "such"})
    elif act == "claim":
        queue.claim(worker="bot-2")
    elif act.endswith("lease runs out"):
        if task.state_claim:
            expire(task)
        queue.claim(worker="nobody", metadata={"none": "such"})
    elif claim:
        method = act.rpartition(" ")[2].replace("cancels", "cancel")
        getattr(claim, method)(*(["no"] if method == "fail" else []))
    else:
        # A token that never was, or the one of the claim that ended the task.
        run = Run.objects.first()
        Task.find_claim(task.pk, run.token if run else "00000000-0000-8000-8000-000000000000").resolve()


@pytest.mark.parametrize("act", sorted({act for acts in ACTS.values() for act in acts}))
@pytest.mark.parametrize("status", STATUSES)
def test_table_of_statuses(queue, status, act):
    if status == "running":
        queue.publish("a", lease=3000)
        claim = claim_one(queue)
        task = fresh(claim.task)
        if act.startswith("last "):
            change(task, state_attempts=5)
    else:
        task, claim = make_task(queue, status), None
    wanted = ACTS[status].get(act, status)
    refused = act not in ACTS[status] and act not in ("time", "claim", "lease runs out", "last lease runs out")
    if refused:
        with pytest.raises((MoveRefused, LeaseLost)):
            _act(act, queue, task, claim if act not in ("cancel", "requeue") else None)
    else:
        _act(act, queue, task, claim)
    assert fresh(task).status == wanted


@pytest.mark.parametrize("state", ["completed", "canceled", "errored", "shared"])
@pytest.mark.parametrize("status", STATUSES)
def test_no_move_by_hand_ends_a_task(queue, status, state):
    task = make_task(queue, status)
    before = row(task)
    for move in (
        lambda: task.transition_perform(state, actor="ann"),
        lambda: Task.transition_perform_queryset(queue.tasks.all(), state),
        lambda: Task.stator.filter(pk=task.pk).move(state),
        lambda: queue.tasks.update(state=state),
    ):
        with pytest.raises(ProtectedState, match=rf"^TaskGraph\.{state} is entered by the framework only"):
            move()
    assert (row(task).state, row(task).state_version) == (before.state, before.state_version)
    assert fresh(task).status == status


def test_dead_letter_is_requeued_with_all_its_attempts_for_all_workers(queue):
    task = make_task(queue, "errored")
    task.requeue("mended", actor="ada")
    assert (task.status, task.attempts, task.rejected_by) == ("pending", 0, ["maker"])
    assert claim_one(queue, "maker").attempt == 1


def test_cancel_names_who_did_it_and_a_canceled_task_is_not_claimed(queue):
    task = make_task(queue)
    task.cancel("by mistake", actor="ada")
    assert queue.claim(worker="bot-1") == []
    with pytest.raises(MoveRefused, match=f"task {task.pk} is canceled; only one that is invisible or pending"):
        task.cancel()


# What is in a queue


def test_statuses_are_found_and_agree_with_those_of_objects(queue):
    for number, status in enumerate(STATUSES):
        make_task(queue, status, priority=-number)
    queue.publish("shared", worker_count=2)
    queue.publish("later", worker_count=2, invisible_for=60)
    for status in STATUSES:
        found = set(Task.objects.with_status(status))
        assert found == {task for task in Task.objects.all() if task.status == status}
        assert found
    assert Task.objects.with_status("running", "errored").count() == 2
    with pytest.raises(TaskError, match="'done' is no status"):
        Task.objects.with_status("done")


def test_tasks_are_found_by_age_and_worker(queue):
    queue.publish("a")
    claim = claim_one(queue)
    assert list(Task.objects.held_by("bot-1")) == list(Task.objects.had_by("bot-1")) == [claim.task]
    claim.release()
    assert list(Task.objects.held_by("bot-1")) == list(Task.objects.had_by("bot-2")) == []
    assert list(Task.objects.had_by("bot-1")) == [claim.task]
    assert not Task.objects.older_than(60)
    QuerySet(Task).update(created="2020-01-01T00:00:00Z")
    assert Task.objects.older_than(60).get() == claim.task


def test_many_are_canceled_and_requeued_by_async_code(queue):
    task = queue.publish("a").task
    assert async_to_sync(Task.objects.filter(pk=task.pk).acancel)("by mistake", actor="ada") == 1
    assert fresh(task).status == "canceled"
    dead = make_task(queue, "errored")
    assert async_to_sync(queue.tasks.filter(pk=dead.pk).arequeue)("mended", actor="ada", per_minute=60).count == 1
    assert fresh(dead).status in ("pending", "invisible")
    assert [act.reason for act in History.objects.filter(actor="ada").order_by("pk")] == ["by mistake", "mended"]
