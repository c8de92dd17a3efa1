"""Tasks for several workers: each runs a part, once; the whole ends with its parts."""

import random
from contextlib import suppress
from functools import partial

import pytest
from django.db import transaction

from stator.exceptions import LeaseLost
from stator.graph.outcomes import Moved
from stator.runner import StatorRunner
from tasks.exceptions import MoveRefused, PublishRefused
from tasks.models import Run, Task
from tests.sizes import PATIENCE
from tests.stator.making import begun_beside, change, raw
from tests.tasks.making import claim_one, fresh, make_queue, pass_time, race
from tests.tasks.queue.processes import operations_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def whole(queue):
    return queue.publish("resize", {"image": 7}, key="k", worker_count=3, metadata={"a": 1}).task


def test_shared_task_has_a_part_for_each_worker(queue, whole):
    parts = list(whole.parts.all())
    assert (whole.state, whole.status, len(parts)) == ("shared", "pending", 3)
    assert {(part.action, part.data["image"], part.key, part.state) for part in parts} == {
        ("resize", 7, None, "pending")
    }
    assert queue.publish("resize", key="k").outcome == "matched"


def test_so_many_workers_run_it_each_once_and_then_it_is_completed(queue, whole):
    claims = [claim_one(queue, f"bot-{number}", limit=9) for number in range(3)]
    assert {claim.task.whole_id for claim in claims} == {whole.pk}
    assert queue.claim(worker="bot-3") == queue.claim(worker="bot-0") == []
    for number, claim in enumerate(claims):
        assert fresh(whole).status == "running"
        claim.resolve(number)
    assert fresh(whole).status == "completed"
    assert fresh(whole).results == [0, 1, 2]


def test_worker_that_holds_a_part_gets_the_task_behind_the_others():
    queue = make_queue(same_worker_again=True)
    queue.publish("resize", worker_count=2)
    queue.publish("crop")
    claim_one(queue)
    assert claim_one(queue).task.action == "crop"


def test_worker_gets_one_part_even_where_it_may_have_tasks_again():
    queue = make_queue(same_worker_again=True)
    queue.publish("a", worker_count=2)
    claim = claim_one(queue)
    assert queue.claim(worker="bot-1") == []
    claim.fail("no")
    claim_one(queue).resolve()
    assert queue.claim(worker="bot-1") == []


def test_part_that_is_given_up_is_for_another_worker(queue, whole):
    claim_one(queue, "bot-0").release()
    assert queue.claim(worker="bot-0") == []
    claims = [claim_one(queue, f"bot-{number}") for number in (1, 2, 3)]
    for claim in claims:
        claim.resolve()
    assert fresh(whole).status == "completed"


def fail_for_good(claim):
    change(claim.task, state_attempts=99)
    claim.fail("no")


def test_failure_of_one_part_ends_no_other_and_whoever_runs_one_may_succeed(queue, whole):
    running, failing = claim_one(queue, "bot-0"), claim_one(queue, "bot-1")
    fail_for_good(failing)
    assert fresh(whole).status == "running"
    running.heartbeat()
    running.resolve("done")
    assert (fresh(whole).status, fresh(whole).results) == ("pending", ["done"])
    claim_one(queue, "bot-2").resolve("too")
    assert (fresh(whole).status, fresh(whole).results) == ("errored", ["done", "too"])


def test_whole_has_the_attempts_of_its_parts_and_the_workers_that_gave_them_up(queue, whole):
    claim_one(queue, "bot-0").resolve()
    claim_one(queue, "bot-1").release("no")
    claims = [claim_one(queue, "bot-2"), claim_one(queue, "bot-3")]
    assert (fresh(whole).attempts, fresh(whole).rejected_by) == (4, ["bot-1"])
    claims[0].fail("no")
    claims[1].cancel()
    # Nobody need run a task that a worker has canceled, so that is no rejection.
    assert (fresh(whole).attempts, fresh(whole).rejected_by) == (4, ["bot-1", "bot-2"])


def test_canceling_the_whole_cancels_its_parts(queue, whole):
    whole.cancel()
    assert fresh(whole).status == "canceled"
    assert {part.status for part in whole.parts.all()} == {"canceled"}
    assert queue.claim(worker="bot-1") == []


def test_whole_that_runs_is_canceled_only_when_that_is_meant(queue, whole):
    claim = claim_one(queue)
    with pytest.raises(MoveRefused, match="is running"):
        whole.cancel()
    whole.cancel(running=True)
    assert {part.status for part in whole.parts.all()} == {"canceled"}
    assert Run.objects.get().outcome == "canceled"
    with pytest.raises(Exception, match="the task is canceled"):
        claim.resolve()


def test_part_that_its_worker_cancels_cancels_the_whole(queue, whole):
    claim_one(queue).cancel()
    assert fresh(whole).status == "canceled"
    assert {part.status for part in whole.parts.all()} == {"canceled"}


def test_requeued_whole_runs_again_but_for_what_is_done(queue, whole):
    claim_one(queue, "bot-0").resolve()
    failing = [claim_one(queue, "bot-1"), claim_one(queue, "bot-2")]
    for claim in failing:
        fail_for_good(claim)
    with pytest.raises(MoveRefused, match="requeue that task"):
        failing[0].task.requeue()
    assert queue.tasks.exclude(whole=None).requeue().count == 0
    done = queue.tasks.requeue(per_minute=60)
    assert (done.count, fresh(whole).status) == (1, "pending")
    assert {part.state_next_attempt for part in whole.parts.filter(state="pending")} == {done.last_due}
    pass_time(1)
    assert queue.claim(worker="bot-0") == []
    for number in (1, 2):
        claim_one(queue, f"bot-{number}").resolve()
    assert fresh(whole).status == "completed"


def test_number_of_workers_is_updated_with_the_key(queue, whole):
    claim_one(queue, "bot-0").resolve()
    assert queue.publish("resize", key="k", worker_count=5, update=True).task.worker_count == 5
    assert (fresh(whole).worker_count, whole.parts.count()) == (5, 5)
    assert {(part.data["image"], part.metadata["a"]) for part in whole.parts.all()} == {(7, 1)}
    queue.publish("resize", key="k", worker_count=2, update=True)
    claim_one(queue, "bot-1").resolve()
    assert (fresh(whole).status, whole.parts.count()) == ("completed", 2)


@pytest.mark.parametrize(("workers", "said"), [(1, "cannot become 1"), (2, "more of its parts have ended")])
def test_number_of_workers_that_a_shared_task_cannot_have_any_more_is_refused(queue, whole, workers, said):
    for number in range(2):
        claim_one(queue, f"bot-{number}").resolve()
    fail_for_good(claim_one(queue, "bot-2"))
    queue.publish("resize", key="k", worker_count=4, clear_failed=True, update=True)
    claim_one(queue, "bot-3").resolve()
    with pytest.raises(PublishRefused, match=said):
        queue.publish("resize", key="k", worker_count=workers, update=True)
    assert (fresh(whole).worker_count, whole.parts.count()) == (4, 4)


@pytest.mark.parametrize(
    ("parts", "status"),
    [(["completed"] * 3, "completed"), (["completed", "errored", "errored"], "errored"),
     (["completed", "errored", "pending"], "pending"), (["errored", "errored", "errored"], "errored"),
     (["completed", "canceled", "pending"], "canceled"), (["completed", "completed", "pending"], "pending")],
)  # fmt: skip
def test_workers_end_a_whole_whose_parts_ended_while_a_process_died(queue, whole, parts, status):
    for part, state in zip(whole.parts.order_by("pk"), parts, strict=True):
        change(part, state=state, state_ready=state == "pending")
    runner = StatorRunner([Task])
    Task.stator.pause()
    runner.run_single_cycle()
    assert fresh(whole).status == status
    assert {part.status for part in whole.parts.all()} <= {"completed", "errored", "canceled", status}


def test_workers_end_the_parts_of_a_whole_that_was_canceled_while_a_process_died(queue, whole):
    running = claim_one(queue)
    change(whole, state="canceled")
    StatorRunner([Task]).run_single_cycle()
    assert {part.status for part in whole.parts.all()} == {"canceled"}
    with pytest.raises(LeaseLost):
        running.resolve()


@pytest.mark.postgresql
def test_of_five_workers_three_run_it(queue):
    for _ in range(10):
        queue.publish("a", worker_count=3)

    def work(name):
        while claims := queue.claim(worker=name):
            claims[0].resolve(name)

    race(5, work)
    assert Task.objects.filter(whole=None, state="completed").count() == 10
    for whole in Task.objects.filter(whole=None):
        assert len(set(whole.results)) == 3
    assert Run.objects.count() == 30


@pytest.mark.postgresql
def test_worker_that_asks_several_times_at_once_gets_one_part(queue):
    for _ in range(5):
        queue.publish("a", worker_count=4)
        claims = [claim for found in race(4, lambda name: queue.claim(worker="one", limit=4)) for claim in found]
        assert len({claim.task.whole_id for claim in claims}) == len(claims) == 1
        claims[0].task.whole.cancel(running=True)


@pytest.mark.postgresql
@pytest.mark.parametrize("worker_count", [1, 3])
def test_cancel_waits_for_a_worker_process_that_ends_the_task_and_holds_nothing_that_it_needs(queue, worker_count):
    task = queue.publish("echo", worker_count=worker_count).task
    operations = operations_of("w1")
    [claim] = operations.claim([Task.state_graph.pending], 1)
    with transaction.atomic():
        raw(Task).select_for_update().get(pk=claim.pk)
        canceled = begun_beside(lambda: task.cancel("no", running=True))
        # What a worker process does once it has locked the row.
        operations.record([(claim, Moved(Task.state_graph.completed))])
    if worker_count == 1:
        with pytest.raises(MoveRefused, match="is completed"):
            canceled.result(PATIENCE)
    else:
        assert canceled.result(PATIENCE) is None
    assert fresh(task).status == ("completed" if worker_count == 1 else "canceled")
    assert not raw(Task).exclude(state_claim=None).exists()


@pytest.mark.postgresql
def test_claim_of_a_part_waits_for_the_other_claim_of_its_worker(queue, whole):
    # Noted already, or the second would wait for the note of the first.
    queue.note_worker("bot-1")
    with transaction.atomic():
        found = queue.claim(worker="bot-1")
        beside = begun_beside(lambda: queue.claim(worker="bot-1"))
        assert not beside.done()
    assert (len(found), beside.result(PATIENCE)) == (1, [])
    assert raw(Task).exclude(state_claim=None).count() == 1


@pytest.mark.postgresql
@pytest.mark.parametrize("change_it", [
    lambda queue, task: queue.publish("resize", key="k", update=True, clear_failed=True),
    lambda queue, task: task.cancel("no", running=True),
    lambda queue, task: task.cancel("no"),
])  # fmt: skip
def test_who_claims_a_part_needs_nothing_that_a_change_of_the_whole_holds(queue, whole, change_it):
    with transaction.atomic():
        # As a claim does that is about to take the parts.
        list(raw(Task).filter(whole=whole).order_by("pk").select_for_update())
        changed = begun_beside(lambda: change_it(queue, whole))
        [claim] = queue.claim(worker="bot-1")
    with suppress(MoveRefused):
        changed.result(PATIENCE)
    assert (claim.lost, fresh(whole).status) in [(False, "running"), (False, "canceled")]


@pytest.mark.postgresql
def test_many_who_cancel_claim_end_requeue_and_publish_again_never_wait_for_each_other_in_a_circle(queue):
    """Every shared task is written by all of them; a deadlock would be the error of one."""
    rounds = range(3)

    def claiming(name):
        for _ in rounds:
            for claim in queue.claim(worker=name, limit=4):
                with suppress(LeaseLost):
                    random.choice([claim.resolve, claim.release, claim.cancel, partial(claim.fail, "no")])()

    def canceling(name):
        for _ in rounds:
            Task.objects.filter(whole=None).cancel(name, running=True)

    def publishing(name):
        for number in rounds:
            given = {"action": "resize", "worker_count": 3, "metadata": {name: number}}
            many = [{**given, "key": key} for key in random.sample("abcdef", 6)]
            queue.publish_many(many, update=True, clear_failed=True, clear_succeeded=True)

    def processing(name):
        for _ in rounds:
            operations = operations_of(name)
            found = operations.claim([Task.state_graph.pending], 5)
            operations.record([(claim, Moved(Task.state_graph.completed)) for claim in found])

    work = [claiming, canceling, canceling, publishing, publishing, processing]
    race(len(work), lambda name: work[int(name.removeprefix("bot-"))](name))
    Task.objects.filter(whole=None).cancel(running=True)
    assert not raw(Task).filter(state__in=["pending", "shared"]).exists()
    assert not raw(Task).exclude(state_claim=None).exists()
