"""Exclusive queues: of one value at most one task runs, in order, and nothing that waits for its time is in the way."""

import pytest
from django.db import IntegrityError
from django.db.models import QuerySet
from django.utils import timezone

from stator.testing import drain
from tasks.actions.registry import RegisteredAction, registry
from tasks.models import Task
from tests.stator.making import expire, operations_of, raw
from tests.tasks.making import claim_one, fresh, make_queue, pass_time, race

pytestmark = pytest.mark.django_db(transaction=True)

WORKERS = 6


@pytest.fixture
def queue():
    return make_queue(exclusive_key="title")


def publish(queue, *titles, **options):
    return [
        published.task
        for published in queue.publish_many(
            {"action": str(number), "priority": number, "metadata": {"title": title}, **options}
            for number, title in enumerate(titles)
        )
    ]


def test_batch_has_at_most_one_of_each_value_in_order(queue):
    publish(queue, "a", "a", "b", "a", "c", "b")
    claims = queue.claim(worker="x", limit=9)
    assert [claim.task.action for claim in claims] == ["0", "2", "4"]
    assert queue.claim(worker="y", limit=9) == []
    claims[0].resolve()
    assert [claim.task.action for claim in queue.claim(worker="y", limit=9)] == ["1"]


def test_value_is_free_again_however_its_task_ended_and_the_first_keeps_its_place(queue):
    for end in ("resolve", "release", "cancel", "lease"):
        first, second = publish(queue, end, end)
        claim = claim_one(queue, "x")
        assert queue.claim(worker="y") == []
        expire(claim.task) if end == "lease" else getattr(claim, end)()
        again = claim_one(queue, "y")
        assert again.task == (first if end in ("release", "lease") else second)
        Task.objects.all().delete()


def test_task_that_is_later_paused_for_another_worker_or_without_attempts_does_not_block_its_value(queue):
    (later,) = publish(queue, "a", invisible_for=60)
    publish(queue, "a", worker_ids=["other"])
    (used_up,) = publish(queue, "a")
    raw(Task).filter(pk=used_up.pk).update(state_attempts=99)
    queue.publish("paused", priority=1, metadata={"title": "a"})
    Task.stator.pause(where={"action": "paused"})
    queue.publish("mine", priority=9, metadata={"title": "a"})
    claim = claim_one(queue)
    assert claim.task.action == "mine"
    claim.resolve()
    pass_time(61)
    assert claim_one(queue).task == later


def ignore(**data):
    """An action that does nothing."""


class TestWorkerProcesses:
    """Tasks that worker processes may not run hold up no other task."""

    @pytest.fixture(autouse=True)
    def actions(self, monkeypatch):
        for name in ("known", "other"):
            monkeypatch.setitem(registry, name, {"": RegisteredAction(name=name, function=ignore)})

    @pytest.fixture
    def second(self, queue):
        """Publishes a task, another of the same value behind it, and returns the latter."""

        def publish(action="known", **options):
            for number in range(3):
                queue.publish(action, priority=number, metadata={"title": "a"}, **options)
            return queue.publish("known", priority=9, metadata={"title": "a"}).task

        return publish

    def test_paused_task_does_not_block_its_value(self, second):
        task = second("other")
        Task.stator.pause(where={"action": "other"})
        drain(Task)
        assert fresh(task).status == "completed"
        assert Task.objects.filter(state="pending").count() == 3
        Task.stator.resume()
        drain(Task)
        assert Task.objects.filter(state="completed").count() == 4

    def test_task_whose_action_is_elsewhere_does_not_block_its_value(self, second):
        task = second("elsewhere")
        drain(Task)
        assert fresh(task).status == "completed"

    def test_task_without_attempts_does_not_block_its_value(self, queue, second):
        task = second(max_attempts=99)
        raw(Task).filter(priority__lt=9).update(state_attempts=99)
        claimed = operations_of(Task).claim([Task.state_graph.pending], 9)
        assert [claim.pk for claim in claimed] == [task.pk]


def test_database_itself_refuses_a_second_running_task_of_a_value(queue):
    _, second = publish(queue, "a", "a")
    claim = claim_one(queue)
    held = {"state_claim": claim.token, "state_locked_until": timezone.now(), "state_attempted": timezone.now()}
    with pytest.raises(IntegrityError):
        QuerySet(Task).filter(pk=second.pk).update(**held)


def test_values_of_two_queues_have_nothing_to_do_with_each_other(queue):
    other = make_queue("other", exclusive_key="title")
    publish(queue, "a")
    publish(other, "a")
    assert len(queue.claim(worker="x")) == len(other.claim(worker="x")) == 1


@pytest.mark.postgresql
def test_due_and_ready_tasks_of_one_value_race_without_an_error(queue):
    """A task that comes due between another worker's look and its claim collides in the unique index."""
    for _ in range(15):
        publish(queue, *["a", "b", "c"] * 4, invisible_for=0.01)
    found = race(WORKERS, lambda name: queue.claim(worker=name, limit=5))
    values = [claim.task.exclusive_value for claims in found for claim in claims]
    assert sorted(values) == sorted(set(values))
    assert raw(Task).filter(state_claim__isnull=False).count() == len(values)
