"""What a task and a claim show of themselves."""

import pytest

from tasks.models import Run
from tests.stator.making import expire
from tests.tasks.making import STATUSES, claim_one, fresh, make_task

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("status", STATUSES)
def test_status_is_that_of_the_row(queue, status):
    assert fresh(make_task(queue, status)).status == status


def test_status_of_a_shared_task_is_the_most_active_of_its_parts(queue):
    whole = queue.publish("resize", worker_count=2).task
    assert fresh(whole).status == "pending"
    claim_one(queue)
    assert fresh(whole).status == "running"


def test_holder_is_shown_only_while_it_holds(queue):
    task = queue.publish("resize").task
    assert (task.claimant, task.claimed_at) == (None, None)
    claim = claim_one(queue)
    held = fresh(task)
    assert (held.claimant, held.claimed_at) == ("bot-1", held.state_attempted)
    claim.resolve(1)
    assert fresh(task).claimant is None


def test_workers_that_gave_up_or_lost_the_task_are_named_once_and_in_order(queue):
    task = queue.publish("resize", max_attempts=10).task
    claim_one(queue, "bot-2").release()
    claim_one(queue, "bot-1")
    expire(task)
    claim_one(queue, "bot-3")
    assert fresh(task).rejected_by == ["bot-2", "bot-1"]
    assert [run.timed_out for run in Run.objects.order_by("pk")] == [False, True, False]


def test_results_are_those_of_completed_parts(queue):
    single, whole = queue.publish("resize").task, queue.publish("resize", worker_count=2).task
    claim_one(queue).resolve({"ok": 1})
    for worker in ("bot-1", "bot-2"):
        claim_one(queue, worker).resolve(worker)
    assert fresh(single).results == [{"ok": 1}]
    assert sorted(fresh(whole).results) == ["bot-1", "bot-2"]
