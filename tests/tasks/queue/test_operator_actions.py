"""The table of statuses: what may become of a task in each, and finding tasks by theirs."""

import pytest

from tasks.exceptions import MoveRefused
from tests.tasks.making import claim_one, make_task

pytestmark = pytest.mark.django_db(transaction=True)


def test_dead_letter_is_requeued_with_all_its_attempts_for_all_workers(queue):
    task = make_task(queue, "errored")
    task.requeue("mended", actor="ada")
    assert (task.status, task.attempts, task.rejected_by) == ("pending", 0, ["maker"])
    assert claim_one(queue, "maker").attempt == 1


def test_cancel_names_who_did_it_and_a_canceled_task_is_not_claimed(queue):
    task = make_task(queue)
    task.cancel("by mistake", actor="ada")
    assert queue.claim(worker="bot-1") == []
    with pytest.raises(MoveRefused, match=f"task {task.pk} is canceled; only a task that is invisible or pending"):
        task.cancel()
