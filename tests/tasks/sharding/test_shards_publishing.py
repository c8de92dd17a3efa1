"""Publishing into several databases: callers see one queue, and one database costs what it always did."""

from collections import Counter

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext

from tasks.exceptions import PublishRefused, QueuePaused, ShardUnavailable
from tasks.models import Queue, Task
from tasks.sharding import replicas, shards
from tests.stator.making import raw
from tests.tasks.making import claim_one, make_queue
from tests.tasks.sharding.databases import BOTH, away, every, exclusive, publish_into, values_of

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


class TestPublishing:
    def test_tasks_are_spread_evenly_and_say_where_they_are(self, queue):
        published = queue.publish_many([{"action": "resize"}] * 10)
        assert Counter(each.task._state.db for each in published) == {"default": 5, "other": 5}
        assert {each.outcome for each in published} == {"inserted"}
        assert all(each.task.queue._state.db == each.task._state.db for each in published)
        assert len(every()) == 10

    def test_key_is_looked_for_where_it_was_put(self, queue):
        keys = [*values_of("default", 3), *values_of("other", 3)]
        first = queue.publish_many({"action": "resize", "key": key} for key in keys)
        again = queue.publish_many([{"action": "resize", "key": key} for key in reversed(keys)], update=True)
        assert [each.task._state.db for each in first] == ["default"] * 3 + ["other"] * 3
        assert [each.task for each in again] == [each.task for each in reversed(first)]
        assert {each.outcome for each in again} == {"matched"}
        assert len(every()) == 6

    def test_choice_stays_the_same_in_every_process(self):
        queue = Queue(databases=["a", "b", "c"])
        found = "".join(shards._chosen(queue, text) for text in ("x", "image-7", "\u00e9", "y", "z"))
        assert found == "abacc"

    def test_all_or_none_in_all_databases(self, queue):
        messages = [{"action": "resize", "key": values_of(alias)[0]} for alias in BOTH]
        with pytest.raises(PublishRefused):
            queue.publish_many([*messages, {"action": ""}])
        with away("other"), pytest.raises(ShardUnavailable):
            queue.publish_many(messages)
        assert every() == []

    def test_exclusive_value_decides(self):
        queue = exclusive()
        for alias in BOTH:
            for title in values_of(alias, 3):
                published = queue.publish("a", key=f"key of {title}", metadata={"title": title})
                assert published.task._state.db == alias

    def test_key_stays_one_task_under_another_value(self):
        queue = exclusive()
        (here,), (there,) = values_of("default"), values_of("other")
        first = queue.publish("a", key="k", metadata={"title": here})
        second = queue.publish("a", key="k", metadata={"title": there})
        assert (first.outcome, second.outcome) == ("inserted", "matched")
        assert second.task == first.task
        assert len(every()) == 1
        with pytest.raises(PublishRefused, match="cannot be updated"):
            queue.publish("a", key="k", metadata={"title": there}, update=True)
        assert every()[0].exclusive_value == here

    def test_pause_is_heeded(self, queue):
        queue.pause(publish=True, reason="full", author="ann")
        with pytest.raises(QueuePaused, match=r"paused by ann \(full\)"):
            queue.publish("resize")

    def test_database_that_is_away_is_named_and_others_go_on(self, queue):
        with away("other"):
            with pytest.raises(ShardUnavailable, match="database 'other' of queue encode cannot be used"):
                publish_into(queue, "other")
            publish_into(queue, "default")
            # What may go anywhere goes where it can.
            assert {queue.publish("resize").task._state.db for _ in range(20)} == {"default"}
        replicas._resting.clear()
        publish_into(queue, "other")

    def test_part_of_a_shared_task_is_where_the_whole_is(self, queue):
        whole = publish_into(queue, "other", worker_count=2)
        assert {task._state.db for task in every(whole=whole.pk)} == {"other"}
        for worker in ("a", "b"):
            claim_one(queue, worker).resolve(worker)
        found = raw(Task, "other").get(pk=whole.pk)
        assert (found.state, found.results) == ("completed", ["a", "b"])


class TestQueuesInOneDatabase:
    """Queues in one database cost as many statements as before."""

    @pytest.mark.parametrize("key", [None, "k"])
    def test_publishing_and_claiming_take_no_further_statement(self, key):
        queue = make_queue()
        queue.publish("a")
        queue.claim(worker="bot-1")
        here, there = (CaptureQueriesContext(connections[alias]) for alias in BOTH)
        for act in (lambda: queue.publish("a", key=key), lambda: queue.claim(worker="bot-1")):
            with here, there:
                act()
            sent = [query["sql"] for query in here]
            assert len([sql for sql in sent if 'FROM "tasks_queue"' in sql]) <= 1
            assert not [sql for sql in sent if "tasks_shard" in sql]
            assert len(there) == 0
