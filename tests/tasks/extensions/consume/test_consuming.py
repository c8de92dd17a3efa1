"""The loop of a named worker, in this process: nothing is lost and nothing done twice, however the body ends."""

import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import OperationalError, connections, transaction
from django.db.models import QuerySet

from stator.claims import OUTAGES
from stator.exceptions import Fail, LeaseLost
from tasks.exceptions import TaskError
from tasks.models import Queue, Run, Task
from tasks.queue import claiming, held_claims
from tasks.queue.waiting import waiters
from tests.processes import wait_until
from tests.stator.making import expire
from tests.tasks.making import claim_one, claimed, fresh, make_queue, publish, statuses

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def heeded():
    """SIGINT as in a terminal: a shell that starts the suite in the background has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def nobody_waits(heeded):
    """Afterwards nothing of a loop is left: no thread, no handler of a signal."""
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    yield
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
    names = ("tasks-waiting", "heartbeats of a consumer")
    wait_until(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith(names)])


def beside(function):
    """Call a function in a thread of its own, which leaves no connection."""

    def call():
        try:
            function()
        finally:
            connections.close_all()

    thread = threading.Thread(target=call)
    thread.start()
    return thread


# Iterating


def test_claim_that_the_body_did_not_end_is_resolved(queue):
    tasks = publish(queue, "abc")
    loop = queue.consume(worker="bot-1")
    for claim in loop:
        if claim.task.action == "a":
            claim.resolve({"ok": True})
        if claim.task.action == "b":
            claim.cancel("not wanted")
        if claim.task.action == "c":
            loop.stop()
    assert statuses(tasks) == ["completed", "canceled", "completed"]
    assert [run.result for run in Run.objects.order_by("task")] == [{"ok": True}, None, None]


def test_loop_waits_for_a_task_and_is_woken_by_it(queue):
    def publish_one():
        wait_until(lambda: len(waiters) == 1)
        queue.publish("a")

    thread = beside(publish_one)
    for claim in queue.consume(worker="bot-1"):
        assert claim.task.action == "a"
        claim.resolve()
        break
    thread.join()
    assert Task.objects.get().status == "completed"


def test_body_that_raises_ends_the_loop_and_releases_its_claim_alone(queue):
    tasks = publish(queue, "abc")
    with pytest.raises(ZeroDivisionError):
        for claim in queue.consume(worker="bot-1", limit=3):
            if claim.task.action == "b":
                1 / 0  # noqa: B018 - the error is what it is about
    assert statuses(tasks) == ["completed", "pending", "pending"]
    assert [fresh(task).attempts for task in tasks] == [1, 1, 0]
    assert [fresh(task).rejected_by for task in tasks] == [[], ["bot-1"], []]
    assert Run.objects.get(outcome="released").reason == "its worker left the loop"
    assert claimed(queue, "bot-1") == ["c"]
    assert claimed(queue, "bot-2") == ["b"]


@pytest.mark.parametrize("end", ["break", "close"])
def test_loop_that_is_left_releases_what_it_began_and_hands_back_the_rest(queue, end):
    tasks = publish(queue, "abc")
    loop = iter(queue.consume(worker="bot-1", limit=3))
    for _ in loop:
        break
    if end == "close":
        loop.close()
    del loop
    assert statuses(tasks) == ["pending"] * 3
    assert claimed(queue, "bot-1") == ["b", "c"]


# Heartbeats


def test_all_claims_of_a_batch_are_extended_while_the_body_works(queue):
    tasks = publish(queue, "abc", heartbeat_interval=0.1)
    loop = queue.consume(worker="bot-1", limit=3)
    for claim in loop:
        first = dict(Run.objects.filter(ended=None).values_list("pk", "lease_until"))
        wait_until(lambda first=first: all(run.lease_until > first[run.pk] for run in Run.objects.filter(ended=None)))
        assert not claim.lost
        if claim.task.action == "c":
            loop.stop()
    assert statuses(tasks) == ["completed"] * 3
    assert {fresh(task).attempts for task in tasks} == {1}


def test_changed_lease_is_taken_at_the_next_heartbeat():
    queue = make_queue(lease=3)
    queue.publish("a")
    loop = queue.consume(worker="bot-1")
    for claim in loop:
        Queue.objects.update(lease=40)
        wait_until(lambda claim=claim: claim.lease > 30)
        assert claim.heartbeat_due - claim._since == pytest.approx(40 / 3, abs=0.5)
        loop.stop()


def test_interval_of_the_task_is_followed_and_a_changed_one_taken_at_the_next_heartbeat(queue):
    (task,) = publish(queue, "a", heartbeat_interval=0.1)
    loop = queue.consume(worker="bot-1")
    for claim in loop:
        until = Run.objects.get().lease_until
        wait_until(lambda until=until: Run.objects.get().lease_until > until)
        assert claim.heartbeat_due - claim._since == pytest.approx(0.1)
        Task.objects.filter(pk=task.pk).update(heartbeat_interval=50)
        wait_until(lambda claim=claim: claim.task.heartbeat_interval == 50)
        # Never so late that the lease could run out.
        assert claim.heartbeat_due - claim._since == pytest.approx(claim.lease * 2 / 3)
        loop.stop()


def lose_to_an_operator(task):
    task.cancel(running=True)


def lose_by_permission(task):
    QuerySet(Task).update(worker_ids=["bot-2"])


@pytest.mark.parametrize("lose", [lose_to_an_operator, lose_by_permission])
def test_body_learns_that_its_claim_is_lost_and_the_loop_goes_on(queue, lose):
    first, second = publish(queue, "a", heartbeat_interval=0.1), []
    loop = queue.consume(worker="bot-1")
    for claim in loop:
        if claim.task.action == "a":
            assert not claim.lost
            lose(fresh(first[0]))
            wait_until(lambda claim=claim: claim.lost)
            with pytest.raises(LeaseLost):
                claim.verify()
            second = publish(queue, "b", worker_ids=["bot-1"])
        else:
            loop.stop()
    assert fresh(first[0]).status in ("canceled", "pending")
    assert statuses(second) == ["completed"]


def test_claim_is_lost_by_the_own_clock_while_the_database_is_away(monkeypatch):
    queue = make_queue(lease=0.6)
    queue.publish("a")

    def away(*args, **kwargs):
        raise OperationalError("gone")

    loop = queue.consume(worker="bot-1")
    for claim in loop:
        monkeypatch.setattr(held_claims.claims, "hold", away)
        wait_until(lambda claim=claim: claim.lost)
        loop.stop()


# Calling a function for each task


def test_function_that_raises_fails_its_task_alone(queue):
    tasks = publish(queue, "ab")
    loop = queue.consume(worker="bot-1")

    def work(claim):
        if claim.task.action == "a":
            raise RuntimeError("no\x00such image")
        loop.stop()

    loop.run(work)
    assert statuses(tasks) == ["pending", "completed"]
    run = Run.objects.get(outcome="failed")
    assert "RuntimeError: no\ufffdsuch image" in run.reason
    assert "in work" in run.reason


@pytest.mark.parametrize(("error", "calls"), [(RuntimeError, 3), (Fail, 1)])
def test_unexpected_errors_are_tried_again_by_the_same_worker_and_then_fail(queue, error, calls):
    (task,) = publish(queue, "a")
    loop = queue.consume(worker="bot-1", local_retries=2, local_delay=0.01)
    made = []

    def work(claim):
        made.append(claim.attempt)
        if len(made) == calls:
            loop.stop()
        raise error("no")

    loop.run(work)
    assert made == [1] * calls
    assert (fresh(task).attempts, fresh(task).state_failures) == (1, 1)


def test_number_of_the_task_replaces_that_of_the_loop(queue):
    for own, calls, counted in ((0, 1, 0), (1, 2, 2), (4, 5, 5), (None, 3, 3)):
        (task,) = publish(queue, "a", max_unexpected_retries=own)
        loop, made = queue.consume(worker=f"bot of {own}", local_retries=2, local_delay=0.01), []
        queue.publish("last")

        def work(claim, loop=loop, made=made):
            if claim.task.action == "last":
                return loop.stop()
            made.append(claim)
            raise RuntimeError("no")

        loop.run(work)
        assert (len(made), task.runs.get().unexpected_errors) == (calls, counted)
        task.cancel()


def test_number_may_be_changed_while_the_task_runs(queue):
    (task,) = publish(queue, "a", max_unexpected_retries=100)
    loop = queue.consume(worker="bot-1", local_delay=0.01)
    made = []

    def work(claim):
        made.append(claim)
        if claim.task.action == "b":
            return loop.stop()
        if len(made) == 3:
            Task.objects.filter(pk=task.pk).update(max_unexpected_retries=1)
            queue.publish("b")
        raise RuntimeError("no")

    loop.run(work)
    assert len(made) == 4
    assert Run.objects.get(outcome="failed").unexpected_errors == 3


def test_errors_are_counted_with_the_task_over_all_claims_of_the_worker():
    queue = make_queue(same_worker_again=True)
    (task,) = publish(queue, "a", max_unexpected_retries=2)
    first = claim_one(queue)
    first.note_error()
    first.note_error()
    assert first.unexpected_errors == 2
    expire(task)
    loop, made = queue.consume(worker="bot-1", local_delay=0.01), []

    def work(claim):
        made.append(claim.attempt)
        if claim.attempt == 3:
            return loop.stop()
        raise RuntimeError("no")

    loop.run(work)
    # The worker that crashed has used its retries.
    assert made == [2, 3]
    other = queue.publish("b", max_unexpected_retries=2)
    claim = claim_one(queue, "bot-2")
    claim.note_error()
    assert (claim.task, claim.unexpected_errors) == (other.task, 1)


# What goes wrong around it


@pytest.mark.parametrize("error", OUTAGES)
def test_loop_outlasts_an_outage_of_the_database(queue, monkeypatch, error):
    (task,) = publish(queue, "a")
    # Every claim and every end begins with these, also on a database that cannot do them.
    claim, move = claiming.claims.claim_at_once, claiming.claims.end
    failures = {"claim": 2, "move": 2}

    def flaky(name, function):
        def call(*args, **kwargs):
            failures[name] -= 1
            if failures[name] >= 0:
                raise error("gone")
            return function(*args, **kwargs)

        return call

    monkeypatch.setattr(claiming.claims, "claim_at_once", flaky("claim", claim))
    monkeypatch.setattr(claiming.claims, "end", flaky("move", move))
    loop = queue.consume(worker="bot-1")
    for _ in loop:
        loop.stop()
    assert (fresh(task).status, fresh(task).attempts) == ("completed", 1)
    assert failures["claim"] == failures["move"] == -1


def test_waiting_in_a_transaction_is_refused(queue):
    with transaction.atomic():
        with pytest.raises(TaskError, match="inside a transaction"):
            queue.claim(worker="bot-1", wait=5)
        with pytest.raises(TaskError, match="inside a transaction"):
            next(iter(queue.consume(worker="bot-1")))
        assert queue.claim(worker="bot-1") == []


# Signals


def test_first_signal_stops_after_the_body_and_the_second_is_as_before(queue):
    tasks = publish(queue, "abc")
    with pytest.raises(KeyboardInterrupt):
        for claim in queue.consume(worker="bot-1", limit=2):
            assert not claim.lost
            signal.raise_signal(signal.SIGINT)
            # Nothing came of the first.
            signal.raise_signal(signal.SIGINT)
    assert statuses(tasks) == ["pending"] * 3
    assert [fresh(task).attempts for task in tasks] == [1, 0, 0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, None], ids=str)
def test_signal_or_stop_ends_the_loop_which_hands_back_what_it_has_not_begun(queue, number):
    tasks = publish(queue, "abc")
    loop = queue.consume(worker="bot-1", limit=3)
    for _ in loop:
        signal.raise_signal(number) if number else loop.stop()
    assert statuses(tasks) == ["completed", "pending", "pending"]
    assert Run.objects.count() == 1
    assert claimed(queue, "bot-1") == ["b", "c"]


def test_ignored_signal_stays_ignored(queue):
    publish(queue, "ab")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        loop = queue.consume(worker="bot-1")
        for claim in loop:
            signal.raise_signal(signal.SIGINT)
            if claim.task.action == "b":
                loop.stop()
    finally:
        signal.signal(signal.SIGINT, before)
    assert Task.objects.filter(state="completed").count() == 2


def test_loop_of_another_thread_leaves_signals_alone(queue):
    publish(queue, "a")
    before, seen = signal.getsignal(signal.SIGTERM), []

    def consume():
        loop = queue.consume(worker="bot-1")
        for _ in loop:
            seen.append(signal.getsignal(signal.SIGTERM))
            loop.stop()
        connections.close_all()

    with ThreadPoolExecutor(1) as threads:
        threads.submit(consume).result()
    assert seen == [before]
    assert Task.objects.get().status == "completed"
