"""Publishing: each task once, whoever publishes it how often, and nothing that could not be claimed."""

import re
from itertools import product

import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from django.test.utils import CaptureQueriesContext, override_settings

from stator.exceptions import LeaseLost
from tasks.actions import registry
from tasks.exceptions import MoveRefused, PublishRefused, QueuePaused, TaskError, UnknownAction
from tasks.models import Queue, Run, Task
from tests.sizes import size
from tests.stator.making import at_once
from tests.tasks.making import STATUSES, claim_one, fresh, make_queue, make_task, pass_time

pytestmark = pytest.mark.django_db(transaction=True)

PUBLISHERS = size(50, 8)


def test_published_task_has_what_its_publisher_says_of_it_and_else_the_time_in_milliseconds_as_its_priority(queue):
    options = OWN | {"key": "resize-7"}
    published = queue.publish("resize", **options)
    task = Task.objects.get()
    assert (published.task, published.outcome) == (task, "inserted")
    assert {name: getattr(task, name) for name in options} == options
    assert (task.queue, task.action) == (queue, "resize")
    assert task.worker_count == 1  # tasks.extensions.shared
    assert (task.status, task.attempts, task.claimant, task.claimed_at) == ("pending", 0, None, None)
    # As the database has it.
    names = [field.attname for field in Task._meta.concrete_fields]
    assert [getattr(published.task, name) for name in names] == [getattr(task, name) for name in names]
    first, second = queue.publish("a").task, queue.publish("b").task
    assert 1_700_000_000_000 < first.priority <= second.priority < 10_000_000_000_000


def test_task_is_invisible_for_as_long_as_it_says_and_else_as_its_queue_does():
    queue = make_queue(invisible_for=60)
    hidden, shown = queue.publish("a").task, queue.publish("b", invisible_for=0).task
    assert (hidden.status, shown.status) == ("invisible", "pending")
    (claim,) = queue.claim(worker="bot-1", limit=9)
    assert claim.task == shown
    claim.resolve()
    pass_time(61)
    assert [claim.task for claim in queue.claim(worker="bot-2", limit=9)] == [hidden]


def test_key_that_is_there_is_left_alone_and_says_what_it_is_at(queue):
    for status in STATUSES:
        outcome = {"invisible": "matched", "pending": "matched", "running": "running"}.get(status, "duplicate")
        task = make_task(make_queue(status), status, key="k")
        published = task.queue.publish("other", {"image": 8}, key="k")
        assert (published.task, published.outcome) == (task, outcome)
        if outcome != "matched":
            task.queue.publish("other", {"image": 8}, key="k", update=True)
        assert (fresh(task).action, fresh(task).status) == ("resize", status)
        assert task.queue.tasks.count() == 1


OWN = {
    "data": {"image": 7}, "priority": -5, "metadata": {"title": "abc"}, "lease": 20.0, "timeout": 30.0,
    "max_attempts": 3, "retention": 60.0, "heartbeat_interval": 4.0, "max_unexpected_retries": 2,
    "worker_ids": ["bot-1"],
}  # fmt: skip
OTHER = {
    "data": {"image": 8}, "priority": 9, "metadata": {"title": "xyz"}, "lease": 21.0, "timeout": 31.0,
    "max_attempts": 4, "retention": 61.0, "heartbeat_interval": 5.0, "max_unexpected_retries": 0, "worker_ids": [],
}  # fmt: skip


def publish_one(queue, **options):
    return queue.publish("resize", **options)


def publish_in_bulk(queue, update, **options):
    return queue.publish_many([{"action": "resize", **options}], update=update)[0]


@pytest.mark.parametrize("publish", [publish_one, publish_in_bulk])
def test_update_changes_only_what_is_given(queue, publish):
    for names in ([], [*OWN][::2], [*OWN][1::2]):
        queue.publish("resize", key=f"of {names}", **OWN)
        given = {name: OTHER[name] for name in names}
        updated = publish(queue, key=f"of {names}", update=True, **given).task
        for task in (updated, fresh(updated)):
            assert {each: getattr(task, each) for each in OWN} == OWN | given


def test_update_moves_the_start_of_a_waiting_task_if_it_is_given(queue):
    publish, now, later = publish_one, make_task(queue, key="now"), make_task(queue, "invisible", key="later")
    done = make_task(queue, "completed", key="done", priority=0)
    assert publish(queue, key="later", update=True, priority=1).task.status == "invisible"
    cleared = queue.publish("resize", key="done", update=True, clear_succeeded=True, invisible_for=60)
    moved = [publish(queue, key=key, update=True, invisible_for=60).task for key in ("now", "later")]
    for task, updated in zip((now, later, done), (*moved, cleared.task), strict=True):
        assert (updated.pk, updated.status, fresh(task).status) == (task.pk, "invisible", "invisible")
    held = make_task(queue, "running", key="held")
    assert publish(queue, key="held", update=True, invisible_for=600).outcome == "running"
    assert (fresh(held).status, queue.claim(worker="bot-1")) == ("running", [])
    pass_time(61)
    assert {now, later, done} <= {claim.task for claim in queue.claim(worker="bot-1", limit=9)}
    # Due now, or as the queue says.
    for own, given in ((None, 0), (None, None), (0.0, None)):
        Queue.objects.update(invisible_for=own)
        queue.publish("resize", key=f"{own} {given}", invisible_for=600)
        assert (
            publish(Queue.objects.get(), key=f"{own} {given}", update=True, invisible_for=given).task.status
            == "pending"
        )


def test_update_of_a_shared_task_changes_all_parts_also_when_they_start_and_leaves_it_enough_workers(queue):
    shared = queue.publish("resize", key="k", worker_count=2, worker_ids=["a", "b", "c", "d"], timeout=9).task
    updated = queue.publish("resize", {"image": 8}, key="k", update=True, invisible_for=60, worker_count=3).task
    assert updated.status == "invisible"
    queue.publish("resize", key="k", update=True, worker_count=4)
    for part in fresh(shared).parts.all():
        assert (part.data, part.worker_ids, part.timeout) == ({"image": 8}, ["a", "b", "c", "d"], 9)
        assert part.status == "invisible"
    assert (shared.parts.count(), queue.claim(worker="a")) == (4, [])
    with pytest.raises(PublishRefused, match=r"task .* is for 4 workers, but worker_ids names fewer"):
        queue.publish("resize", key="k", worker_ids=["a"], update=True)
    pass_time(61)
    assert len(queue.claim(worker="a")) == 1


def test_ended_task_runs_again_when_its_records_are_cleared(queue):
    matched = {("errored", "clear_failed"), ("canceled", "clear_failed"), ("completed", "clear_succeeded")}
    for status, clear in product(("errored", "canceled", "completed", "running"), ("clear_failed", "clear_succeeded")):
        task = make_task(queue, status, key=f"{status} {clear}")
        published = queue.publish("resize", key=task.key, **{clear: True})
        if (status, clear) in matched:
            assert (published.outcome, published.task.status, fresh(task).status) == ("matched", "pending", "pending")
            assert claim_one(queue, "maker").attempt == 1
        else:
            assert published.outcome == ("running" if status == "running" else "duplicate")
            assert fresh(task).status == status


def test_worker_that_failed_may_run_a_waiting_task_again_once_its_failure_is_cleared(queue):
    queue.publish("resize", key="k", max_attempts=2)
    claim_one(queue, "bot-1").fail("no")
    assert not queue.claim(worker="bot-1")
    assert queue.publish("resize", key="k", clear_succeeded=True).outcome == "matched"
    assert not queue.claim(worker="bot-1")
    assert queue.publish("resize", key="k", clear_failed=True).outcome == "matched"
    claim_one(queue, "bot-2").fail("no")
    assert claim_one(queue, "bot-1").attempt == 2
    assert Run.objects.count() == 3


def test_bulk_has_the_same_rules_and_answers_in_order(queue):
    waiting, done = make_task(queue, key="waiting"), make_task(queue, "canceled", key="done")
    given = [
        {"action": "a", "key": "new"}, {"action": "b"}, {"action": "c", "key": "waiting"},
        {"action": "d", "key": "done"}, {"action": "e", "key": "new"}, {"action": "f"},
    ]  # fmt: skip
    published = queue.publish_many(given)
    outcomes = ["inserted", "inserted", "matched", "duplicate", "matched", "inserted"]
    assert [each.outcome for each in published] == outcomes
    assert [each.task.action for each in published] == ["a", "b", "resize", "resize", "a", "f"]
    assert published[0].task == published[4].task
    assert (published[2].task, published[3].task) == (waiting, done)
    assert Task.objects.count() == 5


def test_bulk_takes_few_statements_however_many_tasks(queue):
    counts = []
    for many in (10, 400):
        with CaptureQueriesContext(connection) as queries:
            queue.publish_many({"action": "a", "key": f"{many}-{number}"} for number in range(many))
        counts.append(len(queries))
    assert counts[0] <= 9
    # SQLite takes a thousand parameters in one statement.
    assert counts[1] - counts[0] <= (0 if connection.vendor == "postgresql" else 400 * 30 / 999)
    assert Task.objects.count() == 410


@pytest.mark.postgresql
def test_publishers_at_once_of_one_key_make_one_task(queue):
    published = at_once(*[lambda: queue.publish("resize", {"image": 7}, key="resize-7")] * PUBLISHERS)
    assert sorted(each.outcome for each in published) == ["inserted"] + ["matched"] * (PUBLISHERS - 1)
    assert {each.task.pk for each in published} == {Task.objects.get().pk}


@pytest.mark.postgresql
def test_bulk_publishers_of_the_same_keys_in_opposite_order_make_each_once(queue):
    def publish(keys):
        return lambda: queue.publish_many({"action": "a", "key": str(key)} for key in keys)

    up, down = range(60), range(59, -1, -1)
    published = [each for part in at_once(*[publish(up), publish(down)] * 2) for each in part]
    assert sum(each.outcome == "inserted" for each in published) == Task.objects.count() == 60
    assert len(published) == 240


def test_paused_queue_refuses_publishers_and_says_who_and_why(queue):
    queue.pause(publish=True, reason="disk is full", author="ada")
    with pytest.raises(QueuePaused) as refused:
        Queue.objects.get().publish("a")
    assert str(refused.value) == "queue encode accepts no tasks now: paused by ada (disk is full)"
    assert not Task.objects.exists()


def test_exclusive_queue_refuses_a_message_without_its_key():
    queue = make_queue(exclusive_key="title")
    with pytest.raises(PublishRefused, match="exclusive by 'title'"):
        queue.publish("a", metadata={"name": "abc"})
    assert queue.publish("a", metadata={"title": "abc"}).task.exclusive_value == "abc"
    assert queue.publish("a", metadata={"title": 7}).task.exclusive_value == "7"


def test_unknown_action_is_refused_unless_programs_elsewhere_serve_the_queue(monkeypatch):
    queue = Queue.objects.create(name="encode")
    with pytest.raises(UnknownAction, match="no action 'nowhere' is registered for queue encode"):
        queue.publish("nowhere")
    known = registry.RegisteredAction(name="nowhere", function=len)
    monkeypatch.setitem(registry.registry, "nowhere", {"": known})
    assert queue.publish("nowhere", [1]).outcome == "inserted"
    Queue.objects.update(actions_elsewhere=True)
    assert queue.publish("anything").outcome == "inserted"
    with pytest.raises(UnknownAction, match="no action 'anything'"):
        queue.publish("anything", known_only=True)


def test_refusal_of_an_unknown_action_names_the_remedies():
    queue = Queue.objects.create(name="encode")
    for name, remedy in (
        ("rezise", "did you mean 'resize'?"),
        ("only-here", "it is registered for other queues: special"),
        ("x", "register it with @tasks.action"),
    ):
        with pytest.raises(UnknownAction, match=f"{re.escape(remedy)}; .*set actions_elsewhere=True on the queue"):
            queue.publish(name)
    assert not Task.objects.exists()


def test_data_that_the_action_does_not_take_is_refused_unless_programs_elsewhere_may_take_it(queue):
    ours = Queue.objects.create(name="ours")
    assert len(ours.publish_many([{"action": "resize", "data": {"image": 1}}, {"action": "echo", "data": 7}])) == 2
    for data, why in ({"hight": 3}, "unexpected keyword argument 'hight'|missing"), (None, "'image'"), ({}, "'image'"):
        with pytest.raises(PublishRefused, match=f"action 'resize' cannot be called with this data: .*({why})"):
            ours.publish_many([{"action": "resize", "data": {"image": 2}}, {"action": "resize", "data": data}])
        assert queue.publish("resize", data).outcome == "inserted"
    assert ours.tasks.count() == 2


@override_settings(STATOR_TASKS={"MAX_ATTEMPTS": 2})
def test_attempts_are_those_of_the_message_the_queue_the_action_and_the_setting_in_this_order():
    # The code declares 3 for this action, and none for the other.
    queue = make_queue(same_worker_again=True)
    assert queue.publish("break", max_attempts=7).task.max_attempts == 7
    assert queue.publish("break").task.max_attempts == 3
    assert queue.publish("echo").task.max_attempts is None
    assert make_queue("strict", max_attempts=1).publish("break").task.max_attempts is None


def test_task_that_has_not_ended_is_changed_in_what_is_given_and_no_other_one(queue):
    for status in STATUSES:
        own = {name: value for name, value in OWN.items() if name not in ("data", "worker_ids")}
        task = make_task(make_queue(status), status, **own)
        if status in ("completed", "canceled", "errored"):
            with pytest.raises(MoveRefused, match=f"is {status}; only a task that has not ended can be changed"):
                task.change(timeout=3)
            assert fresh(task).timeout == 30
            continue
        task.change(timeout=None, worker_ids=["bot-2"], heartbeat_interval=1.5)
        own |= {"timeout": None, "worker_ids": ["bot-2"], "heartbeat_interval": 1.5}
        assert {name: getattr(fresh(task), name) for name in own} == own
        async_to_sync(task.achange)(priority=7)
        assert (task.priority, fresh(task).priority, fresh(task).status) == (7, 7, status)


def test_holder_follows_a_change_at_its_next_heartbeat(queue):
    task = queue.publish("resize", lease=30).task
    claim = claim_one(queue, "bot-1")
    task.change(heartbeat_interval=1.5, max_unexpected_retries=4, lease=20)
    claim.heartbeat()
    assert (claim.task.heartbeat_interval, claim.max_unexpected_retries) == (1.5, 4)
    assert claim.lease == pytest.approx(20, abs=8)
    task.change(timeout=10)
    claim.heartbeat()
    assert claim.lease < 10.1
    task.change(worker_ids=["bot-2"])
    with pytest.raises(LeaseLost, match="for other workers now than bot-1"):
        claim.heartbeat()
    assert claim_one(queue, "bot-2").attempt == 1


def test_change_that_cannot_be_is_refused(queue):
    task = make_task(queue, "running")
    for options in ({"timeout": 0}, {"worker_ids": "a"}, {"data": 1}):
        with pytest.raises(TaskError, match=next(iter(options))) as refused:
            task.change(**options)
        assert not isinstance(refused.value, PublishRefused)
