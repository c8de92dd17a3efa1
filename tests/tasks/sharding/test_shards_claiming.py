"""Claiming from several databases: what was promised for one holds for all together, in races as well."""

from collections import Counter

import pytest

from stator.exceptions import LeaseLost
from tasks.models import Queue, Run, Task
from tasks.sharding import replicas
from tests.sizes import size
from tests.stator.making import raw
from tests.tasks.making import claim_one, make_queue, race
from tests.tasks.sharding.databases import BOTH, away, copy_of, every, exclusive, publish_into, values_of

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])

CALLERS, MESSAGES = 20, size(2000, 400)


class TestClaiming:
    def test_batch_is_filled_from_all_databases(self, queue):
        queue.publish_many([{"action": "resize"}] * 10)
        claims = queue.claim(worker="bot-1", limit=8)
        assert len(claims) == 8
        assert {claim.task._state.db for claim in claims} == set(BOTH)
        assert len(queue.claim(worker="bot-1", limit=8)) == 2

    def test_no_database_starves(self, queue):
        queue.publish_many([{"action": "resize"}] * 200)
        found = Counter(claim_one(queue).task._state.db for _ in range(60))
        assert min(found["default"], found["other"]) > 10

    def test_most_urgent_of_each_database_come_first(self, queue):
        queue.publish_many({"action": "resize", "priority": -number} for number in range(20))
        claims = queue.claim(worker="bot-1", limit=20)
        for alias in BOTH:
            priorities = [claim.task.priority for claim in claims if claim.task._state.db == alias]
            assert priorities == sorted(priorities)

    @pytest.mark.parametrize("end", ["resolve", "release", "fail", "cancel"])
    def test_holder_does_all_in_the_database_of_its_task(self, queue, end):
        task = publish_into(queue, "other", max_attempts=1)
        claim = claim_one(queue)
        claim.verify()
        claim.heartbeat(30)
        getattr(claim, end)(*(["no"] if end == "fail" else []))
        with pytest.raises(LeaseLost):
            claim.verify()
        found = raw(Task, "other").get(pk=task.pk)
        assert str(found.state) == {"resolve": "completed", "cancel": "canceled"}.get(end, "errored")
        assert [run.outcome for run in raw(Run, "other")] == [found.runs.get().outcome] != [""]
        assert not raw(Run).exists()

    def test_many_are_resolved_at_once(self, queue):
        queue.publish_many([{"action": "resize"}] * 6)
        claims = queue.claim(worker="bot-1", limit=6)
        claims[0].release()
        lost = queue.resolve_many({claim: number for number, claim in enumerate(claims)})
        assert lost == claims[:1]
        assert sorted(task.result for task in every(state="completed")) == [1, 2, 3, 4, 5]

    def test_one_database_that_is_away_does_not_stop_the_others(self, queue, caplog):
        queue.publish_many([{"action": "resize"}] * 10)
        with away("other"):
            assert len(queue.claim(worker="bot-1", limit=10)) == 5
            assert queue.claim(worker="bot-1", limit=10) == []
        assert [record.database for record in caplog.records if record.msg == "tasks.shard_unavailable"] == ["other"]
        # It is asked again after a while.
        assert queue.claim(worker="bot-1", limit=10) == []
        replicas._resting.clear()
        assert len(queue.claim(worker="bot-1", limit=10)) == 5

    def test_pause_is_heeded_everywhere_and_ends_everywhere(self, queue):
        queue.publish_many([{"action": "resize"}] * 4)
        queue.pause(claim=True, author="ann")
        assert queue.claim(worker="bot-1", limit=4) == []
        assert copy_of(queue).pause_description == "paused by ann"
        queue.resume()
        assert len(queue.claim(worker="bot-1", limit=4)) == 4

    def test_worker_holds_one_task_of_all(self):
        queue = make_queue(databases=BOTH, one_per_worker=True)
        for alias in BOTH:
            publish_into(queue, alias)
        claim = claim_one(queue, limit=5)
        assert queue.claim(worker="bot-1", limit=5) == []
        claim.resolve()
        assert len(queue.claim(worker="bot-1", limit=5)) == 1

    def test_worker_that_asks_at_once_holds_one_task_of_all(self):
        queue = make_queue(databases=BOTH, one_per_worker=True)
        queue.publish_many([{"action": "a"}] * 20)
        found = race(8, lambda name: queue.claim(worker="one", limit=3))
        assert sum(map(len, found)) == len(every(state_claim__isnull=False)) == 1

    def test_long_lived_queue_object_learns_of_new_databases(self):
        queue = make_queue()
        held = Queue.objects.get()
        queue.databases = BOTH
        queue.save()
        queue.publish_many([{"action": "resize"}] * 4)
        assert len(held.claim(worker="bot-1", limit=4)) == 4
        stale = Queue.objects.get()
        Queue.objects.update(databases=["other"])
        replicas.mirror("encode")
        publish_into(stale, "other")
        assert len(stale.claim(worker="bot-1", limit=4)) == 1


class TestRaces:
    @pytest.mark.proof
    def test_callers_who_claim_in_batches_get_nothing_twice_and_all_is_claimed(self, queue):
        queue.publish_many({"action": "a", "priority": number * 7919 % 1000} for number in range(MESSAGES))

        def claim_all(name):
            found = []
            while batch := queue.claim(worker=name, limit=50):
                found += [claim.task.pk for claim in batch]
            return found

        got = [pk for found in race(CALLERS, claim_all) for pk in found]
        got += [claim.task.pk for claim in queue.claim(worker="last", limit=1000)]
        assert len(got) == len(set(got)) == MESSAGES

    @pytest.mark.parametrize("alias", BOTH)
    def test_publishers_of_one_key_make_one_task(self, queue, alias):
        (key,) = values_of(alias)
        outcomes = race(CALLERS, lambda name: str(queue.publish("a", key=key).outcome))
        assert Counter(outcomes) == {"inserted": 1, "matched": CALLERS - 1}
        assert [task._state.db for task in every()] == [alias]

    def test_publishers_of_one_key_with_different_values_make_one_task(self):
        queue = exclusive()
        titles = [*values_of("default", CALLERS // 2), *values_of("other", CALLERS // 2)]

        def publish(name):
            title = titles[int(name.rpartition("-")[2])]
            return str(queue.publish("a", key="k", metadata={"title": title}).outcome)

        assert Counter(race(CALLERS, publish)) == {"inserted": 1, "matched": CALLERS - 1}
        assert len(every()) == 1

    def test_publishers_of_the_same_batches_never_wait_for_each_other_forever(self, queue):
        keys = [*values_of("default", 10), *values_of("other", 10)]

        def publish(name):
            mine = keys if int(name.rpartition("-")[2]) % 2 else keys[::-1]
            return [str(each.outcome) for each in queue.publish_many({"action": "a", "key": key} for key in mine)]

        outcomes = [outcome for found in race(8, publish) for outcome in found]
        assert Counter(outcomes) == {"inserted": 20, "matched": 140}
        assert len(every()) == 20

    @pytest.mark.proof
    def test_of_one_value_never_two_run(self):
        queue = exclusive()
        titles = [*values_of("default", 2), *values_of("other", 2)]
        count = size(300, 60)
        queue.publish_many({"action": "a", "metadata": {"title": titles[n % 4]}} for n in range(count))
        running, seen = Counter(), []

        def work(name):
            done = misses = 0
            while misses < 200 and len(seen) < count:
                claims = queue.claim(worker=name, limit=4)
                misses = 0 if claims else misses + 1
                for claim in claims:
                    title = claim.task.exclusive_value
                    running[title] += 1
                    seen.append(running[title])
                    claim.verify()
                    running[title] -= 1
                    claim.resolve()
                    done += 1
            return done

        assert sum(race(12, work)) == count
        assert set(seen) == {1}
        assert {str(task.state) for task in every()} == {"completed"}
