"""Runs: what is recorded of claims, by named workers and by worker processes."""

from dataclasses import replace

import pytest
from django.db import connection

from stator.conf import load_settings
from stator.db import operations_for
from stator.graph.failures import describe
from stator.graph.outcomes import Moved
from tasks.models import Run, Task
from tests.stator.making import change, expire, raw
from tests.tasks.making import fresh, make_queue
from tests.tasks.queue.processes import live_process, operations_of, process, publish

pytestmark = pytest.mark.django_db(transaction=True)


def test_run_of_a_process_says_what_happened():
    task, failed = publish("echo", data=5), publish("break", make_queue("other", actions_elsewhere=False))
    process("w1")
    run, task = Run.objects.get(task=task), fresh(task)
    assert (run.worker, run.outcome, run.result, run.reason, run.version) == ("w1", "succeeded", [5], "", 0)
    assert run.claimed < run.ended == task.state_changed < run.lease_until
    run = Run.objects.get(task=failed)
    assert (run.worker, run.outcome, "Odd: no" in run.reason) == ("w1", "failed", True)
    assert run.claimed <= run.ended < run.lease_until


def test_batch_is_recorded_with_its_runs_by_one_statement(count):
    queue = make_queue(actions_elsewhere=False)
    queue.publish_many([{"action": "echo", "data": number} for number in range(50)])
    operations = operations_of("w1")
    claims = operations.claim(list(operations.graph.automatic_states), 100)
    done = Moved(operations.graph.states["completed"])
    ended = [(claim, replace(done, values={"result": [claim.pk]})) for claim in claims]
    sent, _ = count(lambda: operations.record(ended))
    if operations.capabilities.writes_in_with:
        assert len(sent) == 1
    else:
        table = connection.ops.quote_name("tasks_run")
        assert len([each for each in sent if each.startswith(f"INSERT INTO {table}")]) == 1
    assert all(run.result == [run.task_id] for run in Run.objects.all())
    assert Run.objects.filter(worker="w1", outcome="succeeded").count() == 50


@pytest.mark.parametrize("ends", ["completed", "errored"])
def test_lost_claims_get_no_run_from_their_outcome(ends):
    queue, operations = make_queue(actions_elsewhere=False), operations_of("w1")
    failure, values = (None, {"result": [1]}) if ends == "completed" else (describe(ValueError("no")), None)
    outcome = Moved(operations.graph.states[ends], failure, values)
    for refused, with_steps in ((0, "all"), (1, ""), (1, "refused"), (3, ""), (3, "all")):
        queue.publish_many({"action": "echo"} for _ in range(3))
        claims = operations.claim(list(operations.graph.automatic_states), 3)
        for claim in claims[: 3 if with_steps == "all" else refused] if with_steps else []:
            claim.own_steps().call("charge", lambda: 1)
        for claim in claims[:refused]:
            change(claim.instance, state_claim=None, state_locked_until=None)
        written = operations.record([(claim, outcome) for claim in claims])
        assert written.lost == claims[:refused], (refused, with_steps)
        assert sorted(Run.objects.values_list("task", flat=True)) == [claim.pk for claim in claims[refused:]]
        raw(Task).all().delete()


def test_lost_lease_is_a_run_of_the_worker_that_lost_it():
    task = publish("echo")
    lost = live_process("w9")
    operations = operations_for(Task, load_settings(), lost.pk)
    (claim,) = operations.claim(list(operations.graph.automatic_states), 1)
    assert fresh(task).claimant == "w9"
    expire(task)
    assert operations.reap(10) == [(task.pk, lost.pk)]
    (run,) = Run.objects.all()
    assert (run.worker, run.token, run.outcome, run.timed_out) == ("w9", claim.token, "lost", True)
    assert (run.reason, run.ended > run.lease_until) == ("its lease ran out", True)
    assert fresh(task).rejected_by == ["w9"]


def test_run_of_a_process_is_kept_when_the_task_is_canceled_or_taken_from_it():
    queue = make_queue(actions_elsewhere=False)
    canceled, withdrawn = queue.publish("echo").task, queue.publish("echo").task
    operations = operations_of("w1")
    claims = operations.claim([Task.state_graph.states["pending"]], 2)
    fresh(canceled).cancel(running=True, reason="asked for")
    change(withdrawn, worker_ids=["w2"])
    operations.renew(claims)
    assert [(run.worker, run.outcome, run.reason) for run in Run.objects.order_by("task")] == [
        ("w1", "canceled", "asked for"), ("w1", "waited", "no longer allowed"),
    ]  # fmt: skip
    assert fresh(withdrawn).rejected_by == []
