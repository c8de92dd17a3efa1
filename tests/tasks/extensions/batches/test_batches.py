"""Batches: the end of their last task moves them, and then they publish an action, once."""

from functools import partial

import pytest
from django.db import transaction

from stator.db.interface import OutcomeBatch
from stator.graph.outcomes import Moved
from stator.runner import StatorRunner
from stator.testing import advance, drain
from tasks.actions.registry import RegisteredAction, registry
from tasks.exceptions import MoveRefused, PublishRefused
from tasks.extensions.batches import chores
from tasks.extensions.batches.chores import tell_first_failures
from tasks.graph import TaskGraph
from tasks.models import Batch, Task
from tests.stator.making import claim_all, operations_of
from tests.tasks.making import claim_one, found_claim, fresh, make_queue, race

pytestmark = pytest.mark.django_db(transaction=True)

ACTIONS = {"on_done": "report", "on_failed": {"action": "complain", "data": {"to": "ann"}}}


def messages(count, action="resize"):
    return [{"action": action, "data": {"image": number}, "max_attempts": 1} for number in range(count)]


def batch_of(queue, count=2, **options):
    batch = Batch(**{**ACTIONS, **options})
    queue.publish_many(messages(count), batch=batch)
    return batch


def state(batch):
    return Batch.objects.get(pk=batch.pk).state


def told(queue):
    """The tasks that batches have published."""
    return list(queue.tasks.filter(key__startswith="tasks.batch:").order_by("pk").values_list("action", "data"))


def end(queue, how="resolve", *arguments):
    getattr(claim_one(queue), how)(*arguments)


def settle(batch):
    """Let a worker serve the batches."""
    drain(Batch)
    batch.refresh_from_db()
    return batch.state


def test_last_task_moves_its_batch_in_its_own_transaction_and_the_batch_publishes_its_action(queue):
    batch = batch_of(queue)
    assert (batch.state, batch.counts()) == (
        "running",
        {"total": 2, "pending": 2, "running": 0, "completed": 0, "canceled": 0, "errored": 0},
    )
    end(queue)
    assert state(batch) == "running"
    [reason] = [each for each in batch.explain() if each.numbers.get("relation") == "tasks"]
    assert (reason.numbers["total"], reason.numbers["missing"]) == (2, 1)
    claim = claim_one(queue)
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        claim.resolve()
        assert state(batch) == "ending"
        raise ZeroDivisionError
    assert (state(batch), fresh(claim.task).state) == ("running", "pending")
    claim = found_claim(claim.task.pk, claim.token)
    claim.resolve()
    assert state(batch) == "ending"
    assert settle(batch) == "done"
    assert told(queue) == [("report", {"batch": batch.pk})]


def test_action_of_a_batch_learns_of_which_whatever_its_data(queue):
    batch = batch_of(queue, 1, on_done={"action": "report", "data": {"to": "ann"}, "metadata": {"tenant": 3}})
    end(queue)
    settle(batch)
    [task] = queue.tasks.filter(key__startswith="tasks.batch:")
    assert (task.data, task.metadata) == ({"to": "ann"}, {"tenant": 3, "batch": batch.pk})


def test_context_has_the_batch_of_a_task_and_of_the_action_of_a_batch(monkeypatch):
    found = {}
    for name in ("work", "report"):
        note = partial(lambda name, context: found.update({name: context.batch}), name)
        action = RegisteredAction(
            name=name, function=lambda context, note=note, **data: note(context), takes_context=True
        )
        monkeypatch.setitem(registry, name, {"": action})
    queue = make_queue(actions_elsewhere=False)
    batch = Batch(on_done={"action": "report", "data": {}})
    queue.publish_many([{"action": "work"}], batch=batch)
    drain(Task, Batch)
    assert found == {"work": batch.pk, "report": batch.pk}
    queue.publish("work", key="tasks.batch:none")
    drain(Task)
    assert found["work"] is None


FIRST = {"on_first_failure": {"action": "alarm", "data": {"to": "ann"}}}


def test_first_failure_is_told_at_once_and_once(queue):
    batch = batch_of(queue, 3, **FIRST)
    end(queue, "fail", "no")
    assert told(queue) == [("alarm", {"to": "ann"})]
    assert queue.tasks.get(action="alarm").metadata == {"batch": batch.pk}
    claim_one(queue, "for alarm", metadata={"batch": batch.pk}).resolve()
    end(queue, "fail", "no")
    StatorRunner([Batch]).run_single_cycle()
    assert len(told(queue)) == 1
    # Its retention is over, so its key says nothing any more.
    queue.tasks.filter(action="alarm").delete()
    end(queue)
    assert settle(batch) == "failed"
    batch.requeue()
    queue.tasks.filter(key__startswith="tasks.batch:").update(priority=2**60)
    end(queue, "fail", "no")
    settle(batch)
    assert [action for action, _ in told(queue)] == ["complain"]


def test_first_failure_that_ends_the_batch_is_told_first(queue, monkeypatch):
    monkeypatch.setattr(chores, "tell_first_failures", lambda *given: None)
    batch = batch_of(queue, 1, **FIRST)
    end(queue, "fail", "no")
    assert settle(batch) == "failed"
    assert [action for action, _ in told(queue)] == ["alarm", "complain"]


def test_first_failure_whose_process_died_is_told_by_the_next_pass(queue, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(chores, "tell_first_failures", lambda *given: None)
        batch = batch_of(queue, 2, **FIRST)
        end(queue, "fail", "no")
    assert (told(queue), state(batch)) == ([], "running")
    StatorRunner([Task]).run_single_cycle()
    assert told(queue) == [("alarm", {"to": "ann"})]


def test_first_failure_waits_for_a_queue_that_takes_nothing(queue):
    batch_of(queue, 2, **FIRST)
    claim = claim_one(queue)
    queue.pause(publish=True)
    claim.fail("no")
    assert told(queue) == []
    queue.resume()
    tell_first_failures("default")
    assert [action for action, _ in told(queue)] == ["alarm"]


@pytest.mark.parametrize("ended", [True, False])
def test_first_failure_is_told_behind_many_batches_without_one(queue, monkeypatch, ended):
    monkeypatch.setattr(chores, "AT_ONCE", 2)
    before = [batch_of(queue, 1, **FIRST) for _ in range(4)]
    if ended:
        for batch in before:
            end(queue)
            assert settle(batch) == "done"
    with monkeypatch.context() as patched:
        patched.setattr(chores, "tell_first_failures", lambda *given: None)
        last = batch_of(queue, 2, **FIRST)
        claims = queue.claim(worker="bot-2", limit=20)
        next(claim for claim in claims if claim.task.batch_id == last.pk).fail("no")
    assert [action for action, _ in told(queue) if action == "alarm"] == []
    tell_first_failures("default")
    assert [action for action, _ in told(queue) if action == "alarm"] == ["alarm"]


def test_of_a_canceled_batch_no_failure_is_told(queue):
    batch = batch_of(queue, 2, **FIRST)
    claim = claim_one(queue)
    batch.cancel()
    claim.fail("no")
    tell_first_failures("default")
    assert told(queue) == []


@pytest.mark.postgresql
def test_of_many_first_failures_at_once_one_is_told(queue):
    batch_of(queue, 6, **FIRST)
    claims = queue.claim(worker="bot-1", limit=6)
    race(6, lambda name: claims.pop().fail("no"))
    assert len(told(queue)) == 1


def test_worker_process_moves_the_batch_with_its_last_task():
    queue = make_queue(actions_elsewhere=False)
    batch = Batch(on_done="told")
    queue.publish_many(messages(3), batch=batch)
    drain(Task, Batch)
    batch.refresh_from_db()
    assert (batch.state, batch.counts()["completed"]) == ("done", 3)
    assert told(queue) == [("told", {"batch": batch.pk})]


def test_batch_with_dead_letters_fails_each_time_and_is_done_once_they_are_repeated(queue):
    batch = batch_of(queue)
    end(queue)
    end(queue, "fail", "no")
    assert (settle(batch), batch.counts()["errored"]) == ("failed", 1)
    for _ in range(2):
        assert batch.requeue(actor="ann").count == 1
        assert (state(batch), batch.counts()["pending"]) == ("running", 1)
        queue.tasks.filter(key__startswith="tasks.batch:").update(priority=2**60)
        how = "fail" if len(told(queue)) == 1 else "resolve"
        end(queue, how, *["no"] * (how == "fail"))
        settle(batch)
    assert batch.state == "done"
    assert told(queue) == [("complain", {"to": "ann"}), ("complain", {"to": "ann"}), ("report", {"batch": batch.pk})]


def test_dead_letter_that_is_requeued_before_the_batch_has_published_keeps_it_running(queue):
    batch = batch_of(queue, 1)
    end(queue, "fail", "no")
    assert state(batch) == "ending"
    batch.requeue()
    assert (settle(batch), told(queue)) == ("running", [])


def test_canceled_tasks_need_not_be_done(queue):
    batch = batch_of(queue)
    end(queue)
    batch.tasks.get(state="pending").cancel()
    assert (settle(batch), told(queue)) == ("done", [("report", {"batch": batch.pk})])
    assert batch.progress.described == "2 of 2 (100 %), 1 canceled"


def test_canceled_batch_publishes_nothing(queue):
    batch = batch_of(queue, 3)
    claim = claim_one(queue)
    assert batch.cancel("ordered twice", actor="ann") == 2
    claim.resolve()
    assert (settle(batch), told(queue)) == ("canceled", [])
    assert batch.cancel() == 0
    with pytest.raises(MoveRefused, match=r"is canceled; requeue its tasks one by one"):
        batch.requeue()


def test_batch_without_tasks_is_done_at_once(queue):
    batch = batch_of(queue, 0)
    assert (batch.state, settle(batch), told(queue)) == ("ending", "done", [("report", {"batch": batch.pk})])
    with pytest.raises(MoveRefused, match=r"is done; only a batch that is not done can be canceled"):
        batch.cancel()


def test_open_batch_takes_tasks_of_several_calls_until_it_has_ended(queue):
    batch = Batch.open(queue, key="import", **ACTIONS)
    for number in range(2):
        queue.publish("resize", {"image": number}, batch=batch)
        end(queue)
    assert settle(batch) == "filling"
    queue.publish("resize", batch=batch)
    batch.close()
    # One that runs takes further tasks too.
    queue.publish("resize", batch=Batch.objects.get(pk=batch.pk))
    end(queue)
    assert (settle(batch), batch.counts()["total"]) == ("running", 4)
    end(queue)
    assert (state(batch), settle(batch)) == ("ending", "done")
    with pytest.raises(PublishRefused, match=r"batch import is done and takes no more tasks"):
        queue.publish("resize", batch=batch)
    assert queue.tasks.exclude(key__startswith="tasks.batch:").filter(state="pending").count() == 0


def test_publication_that_is_repeated_finds_its_batch_and_its_tasks(queue):
    tasks = [{"action": "resize", "key": f"image-{number}"} for number in range(2)]
    first, second, third = (Batch(key="import", **ACTIONS) for _ in range(3))
    queue.publish_many(tasks, batch=first)
    assert [each.outcome for each in queue.publish_many(tasks, batch=second)] == ["matched"] * 2
    assert (second.pk, second.state, second.counts()["total"]) == (first.pk, "running", 2)
    for _ in tasks:
        end(queue)
    settle(first)
    assert [each.outcome for each in queue.publish_many(tasks, batch=third)] == ["duplicate"] * 2
    assert (third.state, len(told(queue))) == ("done", 1)


def test_existing_task_of_a_key_joins_the_batch_if_it_is_in_none(queue):
    existing = queue.publish("resize", key="known").task
    batch = Batch(**ACTIONS)
    queue.publish_many([{"action": "resize", "key": "known"}], batch=batch)
    assert (fresh(existing).batch_id, batch.state) == (batch.pk, "running")
    other = Batch()
    with pytest.raises(PublishRefused, match=rf"task {existing.pk} of key 'known' is in batch {batch.pk}"):
        queue.publish_many([{"action": "resize", "key": "known"}, {"action": "resize", "key": "new"}], batch=other)
    assert (Batch.objects.count(), Task.objects.count()) == (1, 1)


def test_task_that_a_worker_holds_when_it_joins_moves_its_batch_at_the_next_pass(queue):
    queue.publish("resize", key="known")
    claim = claim_one(queue)
    batch = Batch(**ACTIONS)
    queue.publish_many([{"action": "resize", "key": "known"}], batch=batch)
    claim.resolve()
    assert settle(batch) == "done"


def test_shared_task_counts_once_and_ends_its_batch_with_its_last_part(queue):
    batch = Batch(**ACTIONS)
    queue.publish_many([{"action": "resize", "worker_count": 2}], batch=batch)
    assert batch.counts()["total"] == 1
    for worker in ("bot-1", "bot-2"):
        assert state(batch) == "running"
        claim_one(queue, worker).resolve()
    assert settle(batch) == "done"


def test_tasks_stay_until_their_batch_has_ended_and_the_batch_until_they_are_deleted(queue):
    batch = batch_of(queue)
    end(queue)
    advance(8 * 86400, Task, Batch)
    drain(Batch)
    assert batch.tasks.count() == 2
    end(queue)
    settle(batch)
    queue.tasks.filter(batch=None).delete()
    advance(8 * 86400, Task, Batch)
    drain(Batch)
    assert batch.tasks.count() == 0
    assert batch.counts()["completed"] == 2
    drain(Batch)
    assert not Batch.objects.exists()


# That no batch can have, as no task.
KEYS = ("k" * 201, "", "a\0", "a\ud800", 7)


def test_batch_that_cannot_be_is_refused_with_its_tasks(queue):
    inside, batch = make_queue("inside", actions_elsewhere=False), batch_of(make_queue("other"))
    before = [model.objects.count() for model in (Batch, Task)]
    for where, given, said in (
        (queue, "images", r"is not a tasks.models.Batch; pass Batch\(\) or one that runs"),
        (queue, Batch, "is not a tasks.models.Batch"),
        (queue, batch, "is not of queue encode; a batch has tasks of one queue"),
        (queue, Batch(on_done={"action": "report", "key": "k"}), "on_done must be the name of an action, or a"),
        (queue, Batch(on_done=7), "on_done must be the name of an action, or a dictionary"),
        (queue, Batch(on_failed={"action": "a", "priorty": 1}), "on_failed: a task has no option 'priorty'; did you"),
        *((queue, Batch(key=key), "batch key=.* must be a text of 1 to 200 printable characters") for key in KEYS),
        (inside, Batch(on_done="ecko"), r"on_done: no action 'ecko' is registered .* did you mean 'echo'\?"),
        (inside, Batch(on_done="resize"), "on_done: action 'resize' cannot be called with this data"),
    ):
        with pytest.raises(PublishRefused, match=said):
            where.publish_many(messages(1), batch=given)
    assert [model.objects.count() for model in (Batch, Task)] == before


def test_batch_of_a_paused_queue_publishes_when_the_pause_is_over(queue):
    batch = batch_of(queue, 1)
    queue.pause(publish=True)
    end(queue)
    assert settle(batch) == "ending"
    assert "accepts no tasks now" in str(batch.explain()[0])
    queue.resume()
    advance(61, Batch)
    assert (settle(batch), len(told(queue))) == ("done", 1)


@pytest.mark.postgresql
def test_end_of_a_task_that_is_not_the_last_of_its_batch_takes_one_statement(count, queue):
    batch = batch_of(queue, 3)
    end(queue)
    claim = claim_one(queue)
    statements, _ = count(claim.resolve)
    assert (len(statements), state(batch)) == (1, "running")
    statements, _ = count(claim_one(queue).resolve)
    assert (len(statements) > 1, state(batch)) == (True, "ending")


def test_outcome_of_a_task_whose_instance_is_gone_is_written(queue):
    queue.publish("resize")
    operations = operations_of(Task)
    [claim] = claim_all(operations)
    # As where an outcome is written again, after a lock or a deadlock.
    claim.free()
    assert operations.record_batch(OutcomeBatch.of([(claim, Moved(TaskGraph.completed))]), again=True).moves
