"""Spread queues (R3.10): their tasks are in all parts of a divided table, and callers see one queue."""

from collections import Counter

import pytest
from django.core.exceptions import ValidationError
from django.db import transaction

from stator.exceptions import LeaseLost
from stator.migration_operations import Distribute
from stator.runner import StatorRunner
from tasks.exceptions import PublishRefused
from tasks.models import Queue, Run, Task
from tests.sizes import PATIENCE, size
from tests.stator.dividing import execute, while_divided
from tests.stator.making import ago, begun_beside, expire, operations_of, raw
from tests.tasks.making import claim_one, found_claim, make_queue, race

pytestmark = pytest.mark.django_db(transaction=True)

CALLERS, MESSAGES = size(20, 8), size(2000, 400)
TITLES = [f"title {number}" for number in range(12)]


# Where a database has partitions.
partitions = while_divided(Distribute("tasks.Task", by="shard", partitions=8))


@pytest.fixture
def queue():
    return make_queue(spread=True)


def exclusive():
    return make_queue("titles", spread=True, exclusive_key="title")


def parts_used():
    return set(raw(Task).values_list("shard", flat=True))


@pytest.mark.postgresql
def test_tasks_are_in_all_parts_and_those_of_other_queues_in_the_first(queue):
    queue.publish_many([{"action": "a"}] * 200)
    assert len(parts_used()) > 20
    make_queue("other").publish_many([{"action": "a", "key": str(number)} for number in range(20)])
    assert set(raw(Task).filter(queue__name="other").values_list("shard", flat=True)) == {0}
    assert len({place for (place,) in execute("SELECT tableoid FROM tasks_task")}) == 8


def test_spread_is_for_good(queue):
    queue.spread = False
    with pytest.raises(ValidationError, match="spread of a queue cannot be changed"):
        queue.save()


class TestPublishing:
    def test_each_key_is_published_once(self, queue):
        outcomes = [str(queue.publish("a", key=str(number % 10)).outcome) for number in range(30)]
        assert outcomes == ["inserted"] * 10 + ["matched"] * 20
        again = queue.publish_many([{"action": "a", "key": str(number)} for number in range(20)])
        assert Counter(str(each.outcome) for each in again) == {"matched": 10, "inserted": 10}

    def test_publishers_of_one_key_with_different_values_make_one_task(self):
        queue = exclusive()

        def publish(name):
            title = TITLES[int(name.rpartition("-")[2]) % len(TITLES)]
            return str(queue.publish("a", key="k", metadata={"title": title}).outcome)

        assert Counter(race(CALLERS, publish)) == {"inserted": 1, "matched": CALLERS - 1}
        assert raw(Task).count() == 1

    @pytest.mark.postgresql
    def test_value_that_decides_the_part_stays(self):
        queue = exclusive()
        task = queue.publish("a", key="k", metadata={"title": "one"}).task
        queue.publish("b", key="k", metadata={"title": "one"}, update=True)
        with pytest.raises(PublishRefused, match=r"has title=one, which cannot become two, since the queue is spread"):
            queue.publish("b", key="k", metadata={"title": "two"}, update=True)
        assert raw(Task).values_list("pk", "action", "exclusive_value").get() == (task.pk, "b", "one")

    def test_parts_of_a_shared_task_are_beside_it(self, queue):
        task = queue.publish("a", worker_count=5).task
        assert set(raw(Task).values_list("shard", flat=True)) == {task.shard}
        claims = [claim for number in range(5) for claim in queue.claim(worker=f"bot-{number}")]
        assert not queue.claim(worker="bot-1")
        for claim in claims:
            claim.resolve(1)
        StatorRunner([Task]).run_single_cycle()
        assert raw(Task).get(pk=task.pk).state == "completed"


class TestClaiming:
    def test_batch_is_filled_from_all_parts(self, queue):
        queue.publish_many([{"action": "a"}] * 100)
        claims = queue.claim(worker="bot-1", limit=90)
        assert len(claims) == 90
        assert len(queue.claim(worker="bot-1", limit=90)) == 10
        assert not queue.claim(worker="bot-1", limit=90)
        expire(*(claim.task for claim in claims))
        assert len(queue.claim(worker="bot-2", limit=100)) == 90
        with pytest.raises(LeaseLost):
            claims[0].resolve(1)

    def test_most_urgent_tasks_of_all_parts_come_first(self, queue):
        urgent = [number * 7919 % 31 for number in range(31)]
        queue.publish_many({"action": "a", "priority": priority} for priority in urgent)
        claimed = [claim.task.priority for _ in range(10) for claim in queue.claim(worker="bot-1", limit=7)]
        assert claimed == sorted(urgent)

    def test_task_that_this_worker_may_not_have_holds_up_no_other_part(self, queue):
        queue.publish_many([{"action": "a", "priority": 1, "worker_ids": ["somebody"]}] * 150)
        mine = queue.publish("a", priority=2).task
        assert claim_one(queue).task.pk == mine.pk

    def test_claims_by_metadata_find_tasks_in_every_part(self, queue):
        queue.publish_many({"action": "a", "metadata": {"even": number % 2 == 0}} for number in range(60))
        assert len(queue.claim(worker="bot-1", limit=50, metadata={"even": True})) == 30

    def test_holder_does_all_that_it_does_elsewhere(self, queue):
        # Also right after statements for a queue that is not spread.
        other = make_queue("other")
        for end, each in (
            ("resolve", queue), ("release", queue), ("resolve", other), ("fail", queue), ("cancel", queue),
        ):  # fmt: skip
            task = each.publish("a", max_attempts=1).task
            claim = claim_one(each)
            claim.verify()
            claim.heartbeat(30)
            found = found_claim(task.pk, claim.token)
            getattr(found, end)(*(["no"] if end == "fail" else []))
            with pytest.raises(LeaseLost):
                claim.verify()
            ended = raw(Task).get(pk=task.pk)
            assert str(ended.state) == {"resolve": "completed", "cancel": "canceled"}.get(end, "errored")
            assert ended.shard == task.shard

    def test_tasks_come_due_and_are_retained_in_every_part(self, queue):
        queue.publish_many([{"action": "a", "invisible_for": 60}] * 40)
        raw(Task).update(state_next_attempt=ago(1))
        claims = queue.claim(worker="bot-1", limit=40)
        assert len(claims) == 40
        queue.resolve_many(dict.fromkeys(claims, 1))
        raw(Task).update(state_changed=ago(10**8))
        StatorRunner([Task]).run_single_cycle()
        assert not raw(Task).exists()
        assert not Run.objects.exists()


def test_worker_processes_run_tasks_of_every_part():
    queue = make_queue(spread=True, actions_elsewhere=False)
    queue.publish_many([{"action": "echo", "data": number} for number in range(20)])
    make_queue("other", actions_elsewhere=False).publish("echo", 20)
    StatorRunner([Task]).run_single_cycle()
    assert sorted(raw(Task).filter(state="completed").values_list("result", flat=True)) == [[n] for n in range(21)]
    assert Run.objects.count() == 21


def test_worker_processes_take_the_most_urgent_tasks_of_all_parts_first():
    urgent = [number * 7919 % 61 for number in range(61)]
    make_queue(spread=True, actions_elsewhere=False).publish_many(
        {"action": "echo", "priority": priority} for priority in urgent
    )
    claimed = operations_of(Task).claim([Task.state_graph.states["pending"]], 20)
    assert sorted(claim.instance.priority for claim in claimed) == sorted(urgent)[:20]


class TestRaces:
    @pytest.mark.proof
    def test_callers_who_claim_in_batches_get_nothing_twice_and_all_is_claimed(self, queue):
        queue.publish_many({"action": "a", "priority": number * 7919 % 1000} for number in range(MESSAGES))

        def claim_all(name):
            found, own = [], Queue.objects.get()
            while batch := own.claim(worker=name, limit=50):
                found += [claim.task.pk for claim in batch]
            return found

        got = [pk for found in race(CALLERS, claim_all) for pk in found]
        got += [claim.task.pk for claim in queue.claim(worker="last", limit=1000)]
        assert len(got) == len(set(got)) == MESSAGES

    @pytest.mark.postgresql
    def test_partition_that_somebody_locks_holds_up_claims_until_it_is_free(self, queue):
        queue.publish_many([{"action": "a"}] * 40)
        with transaction.atomic():
            execute("LOCK TABLE tasks_task_part3 IN ACCESS EXCLUSIVE MODE")
            claimed = begun_beside(lambda: Queue.objects.get().claim(worker="bot-1", limit=40))
            assert not claimed.done()
        assert len(claimed.result(PATIENCE)) == 40
