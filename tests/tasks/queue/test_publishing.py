"""Publishing: each task once, whoever publishes it how often, and nothing that could not be claimed."""

import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from django.test.utils import CaptureQueriesContext, override_settings

from stator.exceptions import LeaseLost
from tasks.actions import registry
from tasks.exceptions import MoveRefused, PublishRefused, QueuePaused, TaskError, UnknownAction
from tasks.models import Queue, Run, Task
from tests.stator.making import at_once
from tests.tasks.making import claim_one, fresh, make_queue, make_task, pass_time

pytestmark = pytest.mark.django_db(transaction=True)


def test_published_task_has_what_its_publisher_says_of_it(queue):
    options = {
        "data": {"image": 7}, "key": "resize-7", "priority": -5, "metadata": {"title": "abc"}, "lease": 20,
        "timeout": 30, "max_attempts": 3, "retention": 60, "worker_ids": ["bot-1"],
    }  # fmt: skip
    published = queue.publish("resize", **options)
    task = Task.objects.get()
    assert (published.task, published.outcome) == (task, "inserted")
    assert {name: getattr(task, name) for name in options} == options
    assert (task.queue, task.action, task.worker_count) == (queue, "resize", 1)
    assert (task.status, task.attempts, task.claimant, task.claimed_at) == ("pending", 0, None, None)


def test_priority_is_the_time_in_milliseconds_unless_given(queue):
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


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        ("invisible", "matched"), ("pending", "matched"), ("running", "running"), ("completed", "duplicate"),
        ("canceled", "duplicate"), ("errored", "duplicate"),
    ],
)  # fmt: skip
def test_key_that_is_there_is_left_alone_and_says_what_it_is_at(queue, status, outcome):
    task = make_task(queue, status, key="k")
    published = queue.publish("other", {"image": 8}, key="k")
    assert (published.task, published.outcome) == (task, outcome)
    if status not in ("invisible", "pending"):
        queue.publish("other", {"image": 8}, key="k", update=True)
    assert (fresh(task).action, fresh(task).status) == ("resize", status)
    assert Task.objects.count() == 1


@pytest.mark.parametrize("status", ["invisible", "pending"])
def test_parameters_of_a_waiting_task_are_updated_when_asked(queue, status):
    task = make_task(queue, status, key="k")
    published = queue.publish("other", {"image": 8}, key="k", priority=1, metadata={"a": 1}, timeout=9, update=True)
    assert published.outcome == "matched"
    for found in (published.task, fresh(task)):
        assert (found.action, found.data, found.priority, found.metadata, found.timeout) == (
            "other", {"image": 8}, 1, {"a": 1}, 9,
        )  # fmt: skip
    assert fresh(task).status == status


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
@pytest.mark.parametrize("name", [None, *OWN])
def test_update_changes_only_what_is_given(queue, publish, name):
    queue.publish("resize", key="k", **OWN)
    given = {name: OTHER[name]} if name else {}
    updated = publish(queue, key="k", update=True, **given).task
    for task in (updated, fresh(updated)):
        assert {each: getattr(task, each) for each in OWN} == OWN | given


@pytest.mark.parametrize("publish", [publish_one, publish_in_bulk])
@pytest.mark.parametrize("before", [0, 600])
def test_update_moves_the_start_of_a_waiting_task(queue, publish, before):
    task = queue.publish("resize", key="k", invisible_for=before).task
    updated = publish(queue, key="k", update=True, invisible_for=60).task
    assert (updated.pk, updated.status, fresh(task).status) == (task.pk, "invisible", "invisible")
    assert queue.claim(worker="bot-1") == []
    pass_time(61)
    assert [claim.task for claim in queue.claim(worker="bot-1")] == [task]


@pytest.mark.parametrize(("given", "own"), [(0, None), (None, None), (None, 0.0)])
def test_update_makes_a_waiting_task_due_now_or_as_its_queue_says(given, own):
    queue = make_queue(invisible_for=own)
    task = queue.publish("resize", key="k", invisible_for=600).task
    updated = queue.publish("resize", key="k", update=True, invisible_for=given).task
    assert updated.status == "pending"
    assert [claim.task for claim in queue.claim(worker="bot-1")] == [task]


def test_update_leaves_the_start_where_it_was_if_it_is_not_given_and_where_a_worker_holds_the_task(queue):
    hidden, held = queue.publish("resize", key="h", invisible_for=600).task, make_task(queue, "running", key="r")
    assert queue.publish("resize", key="h", update=True, priority=1).task.status == "invisible"
    assert queue.publish("resize", key="r", update=True, invisible_for=600).outcome == "running"
    assert (fresh(hidden).status, fresh(held).status) == ("invisible", "running")


def test_update_moves_the_start_of_all_parts_and_of_parts_that_are_added(queue):
    shared = queue.publish("resize", key="k", worker_count=2).task
    updated = queue.publish("resize", key="k", update=True, invisible_for=60, worker_count=3).task
    assert updated.status == "invisible"
    queue.publish("resize", key="k", update=True, worker_count=4)
    assert [part.status for part in fresh(shared).parts.all()] == ["invisible"] * 4
    assert queue.claim(worker="bot-1") == []
    pass_time(61)
    assert len(queue.claim(worker="bot-1")) == 1


def test_task_that_has_ended_runs_again_later_if_it_is_cleared(queue):
    task = make_task(queue, "completed", key="k")
    published = queue.publish("resize", key="k", update=True, clear_succeeded=True, invisible_for=60)
    assert (published.outcome, published.task.status, fresh(task).status) == ("matched", "invisible", "invisible")
    assert queue.claim(worker="bot-1") == []


def test_update_of_a_shared_task_changes_all_parts_and_leaves_it_enough_workers(queue):
    shared = queue.publish("resize", key="k", worker_count=2, worker_ids=["a", "b", "c"], timeout=9).task
    queue.publish("resize", {"image": 8}, key="k", update=True)
    for part in shared.parts.all():
        assert (part.data, part.worker_ids, part.timeout) == ({"image": 8}, ["a", "b", "c"], 9)
    with pytest.raises(PublishRefused, match=r"task .* is for 2 workers, but worker_ids names fewer"):
        queue.publish("resize", key="k", worker_ids=["a"], update=True)
    assert fresh(shared).worker_ids == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("status", "clear", "outcome"),
    [
        ("errored", "clear_failed", "matched"), ("errored", "clear_succeeded", "duplicate"),
        ("canceled", "clear_failed", "matched"), ("canceled", "clear_succeeded", "duplicate"),
        ("completed", "clear_failed", "duplicate"), ("completed", "clear_succeeded", "matched"),
        ("running", "clear_failed", "running"), ("running", "clear_succeeded", "running"),
    ],
)  # fmt: skip
def test_ended_task_runs_again_when_its_records_are_cleared(queue, status, clear, outcome):
    task = make_task(queue, status, key="k")
    published = queue.publish("resize", key="k", **{clear: True})
    assert published.outcome == outcome
    if outcome == "matched":
        assert published.task.status == fresh(task).status == "pending"
        assert claim_one(queue, "maker").attempt == 1
    else:
        assert fresh(task).status == status


def test_worker_that_failed_may_run_a_waiting_task_again_once_its_failure_is_cleared(queue):
    queue.publish("resize", key="k", max_attempts=2)
    claim_one(queue, "bot-1").fail("no")
    assert not queue.claim(worker="bot-1")
    assert queue.publish("resize", key="k", clear_succeeded=True).outcome == "matched"
    assert not queue.claim(worker="bot-1")
    assert queue.publish("resize", key="k", clear_failed=True).outcome == "matched"
    assert claim_one(queue, "bot-1").attempt == 1
    assert Run.objects.count() == 2


def test_keys_are_those_of_one_queue(queue):
    assert queue.publish("a", key="k").outcome == "inserted"
    assert make_queue("other").publish("a", key="k").outcome == "inserted"
    assert queue.publish("a").outcome == queue.publish("a").outcome == "inserted"


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
    for size in (10, 400):
        with CaptureQueriesContext(connection) as queries:
            queue.publish_many({"action": "a", "key": f"{size}-{number}"} for number in range(size))
        counts.append(len(queries))
    assert counts[0] <= 9
    # SQLite takes a thousand parameters in one statement.
    assert counts[1] - counts[0] <= (0 if connection.vendor == "postgresql" else 400 * 30 / 999)
    assert Task.objects.count() == 410


@pytest.mark.postgresql
def test_fifty_publishers_of_one_key_make_one_task(queue):
    published = at_once(*[lambda: queue.publish("resize", {"image": 7}, key="resize-7")] * 50)
    assert sorted(each.outcome for each in published) == ["inserted"] + ["matched"] * 49
    assert {each.task.pk for each in published} == {Task.objects.get().pk}


@pytest.mark.postgresql
def test_bulk_publishers_of_the_same_keys_in_opposite_order_make_each_once(queue):
    def publish(keys):
        return lambda: queue.publish_many({"action": "a", "key": str(key)} for key in keys)

    up, down = range(300), range(299, -1, -1)
    published = [each for part in at_once(*[publish(up), publish(down)] * 4) for each in part]
    assert sum(each.outcome == "inserted" for each in published) == Task.objects.count() == 300
    assert len(published) == 2400


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


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("rezise", "did you mean 'resize'?"),
        ("only-here", "it is registered for other queues: special"),
        ("x", "register it with @tasks.action"),
    ],
)
def test_refusal_of_an_unknown_action_names_the_remedies(name, remedy):
    queue = Queue.objects.create(name="encode")
    with pytest.raises(UnknownAction) as refused:
        queue.publish(name)
    assert str(refused.value) == (
        f"no action {name!r} is registered for queue encode; {remedy}; "
        "if programs elsewhere run it, set actions_elsewhere=True on the queue"
    )
    assert not Task.objects.exists()


def test_data_that_the_action_does_not_take_is_refused_unless_programs_elsewhere_may_take_it(queue):
    ours = Queue.objects.create(name="ours")
    assert len(ours.publish_many([{"action": "resize", "data": {"image": 1}}, {"action": "echo", "data": 7}])) == 2
    for data, why in ({"hight": 3}, "unexpected keyword argument 'hight'|missing"), (None, "'image'"), ({}, "'image'"):
        with pytest.raises(PublishRefused, match=f"action 'resize' cannot be called with this data: .*({why})"):
            ours.publish_many([{"action": "resize", "data": {"image": 2}}, {"action": "resize", "data": data}])
        assert queue.publish("resize", data).outcome == "inserted"
    assert ours.tasks.count() == 2


def test_async_code_publishes_and_claims(queue):
    async_to_sync(_publish_and_claim)(queue)
    task = Task.objects.get()
    assert (task.status, task.result) == ("completed", {"ok": True})


async def _publish_and_claim(queue):
    published = await queue.apublish("a", {"n": 1}, key="k")
    assert published.outcome == "inserted"
    assert [each.outcome for each in await queue.apublish_many([{"action": "a", "key": "k"}])] == ["matched"]
    (claim,) = await queue.aclaim(worker="bot-1")
    await claim.averify()
    await claim.aheartbeat()
    await claim.aresolve({"ok": True})


@override_settings(STATOR_TASKS={"MAX_ATTEMPTS": 2})
def test_attempts_are_those_of_the_message_the_queue_the_action_and_the_setting_in_this_order():
    # The code declares 3 for this action, and none for the other.
    queue = make_queue(same_worker_again=True)
    assert queue.publish("break", max_attempts=7).task.max_attempts == 7
    assert queue.publish("break").task.max_attempts == 3
    assert queue.publish("echo").task.max_attempts is None
    assert make_queue("strict", max_attempts=1).publish("break").task.max_attempts is None


@pytest.mark.parametrize("status", ["invisible", "pending", "running"])
def test_task_that_has_not_ended_is_changed_in_what_is_given(queue, status):
    own = {name: value for name, value in OWN.items() if name not in ("data", "worker_ids")}
    task = make_task(queue, status, **own)
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


@pytest.mark.parametrize("status", ["completed", "canceled", "errored"])
def test_ended_task_is_not_changed(queue, status):
    task = make_task(queue, status)
    with pytest.raises(MoveRefused, match=f"is {status}; only a task that has not ended can be changed"):
        task.change(timeout=3)
    assert fresh(task).timeout is None


@pytest.mark.parametrize(
    "options",
    [{"timeout": 0}, {"worker_ids": "a"}, {"heartbeat_interval": "1"}, {"max_attempts": 0}, {"data": 1}, {"key": "k"}],
)
def test_change_that_cannot_be_is_refused(queue, options):
    task = make_task(queue, "running")
    with pytest.raises(TaskError, match=next(iter(options))) as refused:
        task.change(**options)
    assert not isinstance(refused.value, PublishRefused)
