"""The rules of a queue hold for ``runstator`` processes as for named workers, and between the two kinds."""

from datetime import timedelta

import pytest
from django.utils import timezone

import tasks
from stator.models import Worker
from tasks.actions.registry import RegisteredAction, registry
from tasks.models import Queue, Run, Task
from tasks.queue import eligibility, process_eligibility
from tests.processes import wait_until
from tests.stator.making import ago, change, raw
from tests.tasks.making import claim_one, fresh, make_queue, pass_time
from tests.tasks.queue.processes import live_process, operations_of, process, publish

pytestmark = pytest.mark.django_db(transaction=True)

# By which the clocks of the process and the database may differ.
LITTLE = timedelta(seconds=0.01)


def codes(task):
    return [reason.code for reason in fresh(task).explain()]


# Rejection: R1.3, R1.5, R1.7, R2.5


def test_process_that_released_a_task_leaves_it_to_others(monkeypatch):
    def release():
        raise tasks.Release("not here")

    monkeypatch.setitem(registry, "release", {"": RegisteredAction(name="release", function=release)})
    task = publish("release")
    assert process("w1") == 1
    pass_time(3600)
    assert process("w1") == 0
    assert (fresh(task).status, fresh(task).rejected_by) == ("pending", ["w1"])
    assert process("w2") == 1


def test_retries_let_it_have_the_task_so_often():
    publish(queue=make_queue(worker_retries=2, actions_elsewhere=False, max_attempts=20))
    made = []
    for _ in range(4):
        made.append(process("w1"))
        pass_time(3600)
    assert made == [1, 1, 1, 0]


def test_cleared_failures_are_forgotten():
    queue = make_queue(worker_retries=0, actions_elsewhere=False)
    task = queue.publish("break", key="one").task
    process("w1")
    queue.publish("break", key="one", clear_failed=True)
    pass_time(3600)
    assert process("w1") == 1
    assert fresh(task).rejected_by == ["w1"]


def test_every_live_worker_that_has_its_action_has_rejected_it():
    task = publish()
    live_process("w1")
    process("w1")
    pass_time(3600)
    change(task, state_ready=True)
    live_process("without", published={"tasks": {"actions": {"": ["echo"]}, "queues": None}})
    assert codes(task)[0] == "no_eligible_worker"
    assert Task.stator.explain_counts() == {"no_eligible_worker": 1}
    live_process("w2")
    assert "no_eligible_worker" not in codes(task)


# By default


def test_only_process_tries_a_task_again():
    for number, settings in enumerate(
        ({}, {"same_worker_again": True}, {"same_worker_again": True, "worker_retries": 0})
    ):
        publish(queue=make_queue(f"queue {number}", actions_elsewhere=False, max_attempts=20, **settings))
    assert process("w1") == 3
    pass_time(3600)
    assert process("w1") == 3


def test_by_default_a_task_that_failed_here_is_left_to_other_processes_for_some_seconds(monkeypatch):
    # On a crowded machine, five seconds may pass within the test.
    monkeypatch.setattr(eligibility, "LEFT_TO_OTHERS", 300.0)
    task = publish(queue=make_queue(actions_elsewhere=False, max_attempts=20))
    live_process("w2")
    assert process("w1") == 1
    pass_time(100)
    assert process("w1") == 0
    live_process("w3")
    assert process("w2") == 1
    pass_time(100)
    assert process("w1") == process("w2") == 0
    pass_time(3600)
    assert process("w2") == 1
    assert fresh(task).rejected_by == ["w1", "w2"]


def test_asking_for_another_attempt_later_is_no_rejection():
    task = publish("later")
    process("w1")
    pass_time(10)
    assert process("w1") == 1
    assert fresh(task).rejected_by == ["w1"]
    assert list(task.runs.order_by("pk").values_list("outcome", flat=True)) == ["waited", "failed"]


# Names: R2.4, R2.12, R2.13


def test_process_gets_tasks_for_anyone_and_those_that_name_it():
    queue = make_queue(actions_elsewhere=False)
    for workers in ([], ["w1"], ["w2"], ["w2", "w1"]):
        queue.publish("echo", "".join(workers), worker_ids=workers)
    assert process("w1") == 3
    assert [task.worker_ids for task in Task.objects.exclude(state="completed")] == [["w2"]]
    assert process("w2") == 1


def test_running_process_loses_a_task_that_is_for_others_now(worker_process):
    task = publish("wait", heartbeat_interval=0.5)
    with worker_process("tasks.Task", "--name", "w1") as worker:
        wait_until(lambda: fresh(task).claimant == "w1", message=worker.output)
        Task.objects.update(worker_ids=["w2"])
        wait_until(lambda: fresh(task).state_claim is None, message=worker.output)
        wait_until(lambda: "stator.claim_ended" in worker.output(), message=worker.output)
        assert "stator.lease_lost" not in worker.output()
    # The attempt had begun.
    assert (fresh(task).status, fresh(task).state_attempts) == ("pending", 1)
    assert claim_one(task.queue, "w2").attempt == 2


# One at a time: R1.8


def test_process_holds_one_task_of_a_queue_with_one_per_worker():
    queue = make_queue("single", one_per_worker=True, actions_elsewhere=False)
    for number in range(3):
        queue.publish("echo", number, priority=number)
    other = make_queue("many", actions_elsewhere=False)
    for number in range(3):
        other.publish("echo", number)
    assert process("w1", rounds=4) == [4, 1, 1, 0]
    assert [run.task.data for run in Run.objects.filter(task__queue=queue).order_by("pk")] == [0, 1, 2]


def test_process_and_named_worker_each_hold_one_and_those_of_one_name_one_together():
    queue = make_queue("single", one_per_worker=True, actions_elsewhere=False, same_worker_again=True)
    for number in range(3):
        queue.publish("echo", number)
    held = claim_one(queue, "w1")
    assert queue.claim(worker="w1", limit=5) == []
    assert process("w1") == 0
    assert process("w2") == 1
    held.release()
    operations = operations_of("w1")
    Worker.objects.create(id=operations.worker_id, name="w1", host="h", pid=1, version="1", models=["tasks.task"])
    [claim] = operations.claim([operations.graph.states["pending"]], 3)
    assert queue.claim(worker="w1", limit=5) == []
    operations.release_token(claim.token)
    assert len(queue.claim(worker="w1", limit=5)) == 1


# Shared tasks: R2.3


def test_process_gets_one_part_of_a_shared_task_and_a_namesake_no_second_one():
    task = publish("echo", worker_count=4)
    assert process("w1", rounds=3) == [1, 0, 0]
    assert task.queue.claim(worker="w1") == []
    held = claim_one(task.queue, "w3")
    assert process("w3") == 0
    assert process("w2", rounds=2) == [1, 0]
    held.resolve()
    claim_one(task.queue, "bot").resolve()
    assert fresh(task).status == "completed"
    assert sorted(Run.objects.values_list("worker", flat=True)) == ["bot", "w1", "w2", "w3"]


# Limits of actions bind named workers: R2.14


@pytest.mark.needs("throttles")
def test_rate_of_an_action_binds_named_workers():
    queue = make_queue()
    for number in range(4):
        queue.publish("twice", {"number": number})
    queue.publish("echo", priority=10**15)
    first = queue.claim(worker="bot", limit=3)
    assert [claim.task.action for claim in first] == ["twice", "twice"]
    assert [claim.task.action for claim in queue.claim(worker="bot-2", limit=3)] == ["echo"]
    assert process("w1") == 0
    waiting = Task.objects.filter(action="twice", state_claim=None)
    assert [(task.attempts, task.status) for task in waiting] == [(0, "invisible"), (0, "invisible")]


@pytest.mark.needs("throttles")
def test_concurrency_of_an_action_binds_named_workers_and_processes_together():
    queue = make_queue(actions_elsewhere=False)
    for _ in range(2):
        queue.publish("single", {"door": "a"})
    held = claim_one(queue, "bot", limit=2)
    pass_time(5)
    assert process("w1") == 1
    assert Task.objects.filter(state="completed").count() == 0
    held.resolve()
    pass_time(60)
    assert process("w1") == 1
    assert Task.objects.filter(state="completed").count() == 2


@pytest.mark.parametrize("rule", [{"one_per_worker": True}, {"worker_retries": 2}])
def test_rule_that_a_process_has_not_read_yet_is_not_broken(rule):
    operations, pending = operations_of("w1"), [Task.state_graph.states["pending"]]
    process_eligibility.note_rules(operations.worker_id, ["default"])
    queue = make_queue(actions_elsewhere=False, **rule)
    queue.publish_many([{"action": "echo"}] * 3)
    assert operations.claim(pending, 3) == []
    process_eligibility.note_rules(operations.worker_id, ["default"])
    assert len(operations.claim(pending, 3)) == (1 if "one_per_worker" in rule else 3)


# Leases and the order within one priority: R3.6, R2.4, R2.8


def test_of_one_priority_a_process_takes_tasks_that_name_it_first():
    queue = make_queue(actions_elsewhere=False)
    for action, names in [("echo", []), ("echo", ["w1"]), ("break", []), ("break", ["w1"])]:
        queue.publish(action, worker_ids=names, priority=1)
    queue.publish("echo", priority=0)
    claims = operations_of("w1").claim([Task.state_graph.states["pending"]], 4)
    assert [(claim.instance.priority, claim.instance.worker_ids) for claim in claims] == [
        (0, []), (1, ["w1"]), (1, ["w1"]), (1, []),
    ]  # fmt: skip


def claimed_by_process(operations, queue, **options):
    """The claim of a new task by a worker process."""
    queue.publish("echo", **options)
    [claim] = operations.claim([Task.state_graph.states["pending"]], 1)
    return claim


def test_process_leases_for_as_long_as_the_task_its_queue_or_the_setting_says():
    operations = operations_of("w1")
    for own, of_queue, lease in ((None, None, 60.0), (None, 20.0, 20.0), (7.0, 20.0, 7.0), (0.05, None, 3.0)):
        queue = make_queue(f"of {lease} s", actions_elsewhere=False, lease=of_queue)
        claim = claimed_by_process(operations, queue, lease=own)
        assert claim.lease == pytest.approx(lease, abs=0.01)
        # For as long, however long the attempt has taken.
        raw(Task).filter(pk=claim.pk).update(state_attempted=ago(100))
        begun = timezone.now()
        assert operations.renew([claim]) == set()
        renewed = fresh(claim.instance).state_locked_until - timedelta(seconds=lease)
        assert begun - LITTLE < renewed < timezone.now() + LITTLE


def test_process_renews_at_the_interval_of_the_task_and_follows_a_change_from_its_next_renewal():
    queue, operations = make_queue(actions_elsewhere=False), operations_of("w1")
    for interval, beat in ((None, 20.0), (2.0, 2.0), (50.0, 20.0)):
        claim = claimed_by_process(operations, queue, heartbeat_interval=interval)
        assert claim.heartbeat == pytest.approx(beat, abs=0.01)
        change(claim.instance, heartbeat_interval=1.5)
        assert operations.renew([claim]) == set()
        assert claim.heartbeat == 1.5


def test_lease_of_a_process_ends_soon_after_the_timeout_however_often_it_is_renewed():
    operations = operations_of("w1")
    for timeout, of_queue, lease in ((None, None, 60.0), (10.0, None, 15.0), (0.5, 20, 5.5), (None, 10, 15.0)):
        queue = make_queue(f"{timeout} {of_queue}", actions_elsewhere=False, timeout=of_queue)
        claim = claimed_by_process(operations, queue, timeout=timeout)
        assert claim.lease == pytest.approx(lease, abs=0.01)
        until = fresh(claim.instance).state_locked_until
        assert operations.renew([claim]) == set()
        assert (fresh(claim.instance).state_locked_until > until) == (timeout is of_queue is None)


def test_shorter_timeout_is_that_of_the_attempt_from_its_next_renewal():
    operations = operations_of("w1")
    for of_queue in (False, True):
        queue = make_queue(f"{of_queue}", actions_elsewhere=False, timeout=None if of_queue else 3600)
        claim = claimed_by_process(operations, queue)
        claim.max_runtime = 60.0
        operations.renew([claim])
        assert claim.max_runtime == 60
        if of_queue:
            Queue.objects.filter(pk=queue.pk).update(timeout=2.5)
        else:
            fresh(claim.instance).change(timeout=2.5)
        assert operations.renew([claim]) == set()
        assert claim.max_runtime == 2.5


@pytest.mark.parametrize("others", [[], ["w3"]])
def test_strict_queue_gives_no_worker_of_any_kind_a_task_again(others):
    queue = make_queue(worker_retries=0, actions_elsewhere=False, max_attempts=20)
    task = queue.publish("break").task
    for name in others:
        live_process(name)
    assert process("w1", rounds=2) == [1, 0]
    pass_time(3600)
    # A long time later, and for a program of the same name.
    assert process("w1") == 0
    assert fresh(task).rejected_by == ["w1"]
    change(task, state_ready=True)
    assert queue.claim(worker="w1") == []
    claim_one(queue, "bot-1").fail("no")
    assert queue.claim(worker="bot-1") == []
    assert process("bot-1") == 0
    assert (process("w2"), fresh(task).attempts) == (1, 3)
    assert [run.worker for run in task.runs.order_by("pk")] == ["w1", "bot-1", "w2"]
