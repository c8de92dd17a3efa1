"""Rows that change under a handler: deleted (F21), changed by others (F22, F23). F24 and F25: test_versions.py."""

from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from threading import Barrier

import pytest
from django.db import connection, connections

from stator.conf import Settings
from stator.db import operations_for
from stator.db.interface import new_worker_id
from stator.graph.outcomes import Moved
from stator.models import History
from stator.rows.columns import after
from tests.faults.checker import kinds_of
from tests.faults.fleet import LEASE, logged
from tests.sizes import PATIENCE
from tests.testapp.actor import acting_as
from tests.testapp.faults import Effect, Fading, Job, JobGraph, ThreadJob, effect_of

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]


def in_a_handler(workers, count=1, lease=60):
    """A worker whose handlers have begun with so many objects and wait for the gate."""
    worker = workers.start(STATOR_LEASE=lease)
    workers.until(lambda: Effect.objects.count() >= count)
    return worker


def until_refused(workers, worker, count=1):
    """Wait for so many outcomes that were refused; each because somebody ended the claim, and no lease ran out."""
    workers.until(lambda: len(logged(worker, "stator.claim_ended")) >= count)
    assert not logged(worker, "stator.lease_lost")


def test_row_that_is_due_for_deletion_is_not_deleted_under_its_handler(watch, fleet, gate):
    watched = watch(Fading)
    Fading.objects.create(gate=str(gate))
    other = Fading.objects.create(state="done")
    workers = fleet("testapp.Fading", STATOR_SCHEDULE_INTERVAL=0.2)
    worker = in_a_handler(workers)
    workers.until(lambda: not Fading.objects.filter(pk=other.pk).exists())
    workers.until(lambda: Fading.objects.filter(state_changed__lte=after(-2)).exists())

    gate.touch()

    workers.until(lambda: not Fading.objects.exists())
    workers.stop()
    assert logged(worker, "stator.lease_lost") == []
    assert {violation.pk for violation in watched.violations(Fading)} <= {str(other.pk)}


def test_what_others_do_to_rows_under_their_handlers_stands(watch, fleet, gate):
    """Deleted, moved by hand, and moved away and back, which is another stay."""
    watched = watch(ThreadJob)
    deleted, moved, back, untouched = (ThreadJob.objects.create(gate=str(gate)) for _ in range(4))
    workers = fleet("testapp.ThreadJob")
    worker = in_a_handler(workers, 4)

    ThreadJob.objects.filter(pk=deleted.pk).delete()
    moved.transition_perform("done")
    back.transition_perform("halfway")
    back.transition_perform("fresh")
    workers.until(lambda: workers.starts(worker, version=2).exists())
    gate.touch()

    until_refused(workers, worker, 3)
    workers.finish(ThreadJob)
    versions = dict(ThreadJob.objects.values_list("pk", "state_version"))
    assert versions == {moved.pk: 1, back.pk: 4, untouched.pk: 2}
    watched.judge()


def test_state_changed_past_the_framework_under_a_handler_stands(watch, fleet, gate):
    watched = watch(Job)
    job = Job.objects.create(gate=str(gate))
    workers = fleet("testapp.Job")
    worker = in_a_handler(workers, lease=LEASE)

    with connection.cursor() as cursor:
        cursor.execute("UPDATE testapp_job SET state = 'halfway' WHERE id = %s", [job.pk])
    gate.touch()

    until_refused(workers, worker)
    workers.finish(Job)
    job.refresh_from_db()
    assert job.state_version == 1
    assert kinds_of(watched.violations(Job)) == {"I2"}


def test_moves_by_hand_and_a_completion_at_once(watch):
    watched = watch(Job)
    # The orders in which they may begin.
    orders = list(permutations(range(3)))
    operations = operations_for(Job, Settings(), new_worker_id())

    for order in orders:
        job = Job.objects.create()
        with acting_as("worker"):
            claim = claimed(operations)
        acts = [
            lambda claim=claim: complete(operations, claim),
            lambda job=job: Job.objects.get(pk=job.pk).transition_perform("halfway", actor="one"),
            lambda job=job: Job.objects.get(pk=job.pk).transition_perform("done", actor="two"),
        ]
        written, *_ = at_once(acts, order)
        assert len(written.moves) + len(written.lost) == 1
        Job.objects.get(pk=job.pk).transition_perform("done")

    assert History.objects.count() == 3 * len(orders)
    watched.judge()


@pytest.mark.parametrize("late_first", [True, False])
def test_both_outcomes_of_a_row_that_its_worker_lost_and_claimed_again(watch, late_first):
    watched = watch(Job)
    Job.objects.create()
    operations = operations_for(Job, Settings(), new_worker_id())
    with acting_as("worker"):
        late = claimed(operations)
        Job.stator.unlock()
        current = claimed(operations)
        both = [(late, Moved(JobGraph.halfway)), (current, Moved(JobGraph.halfway))]

        written = operations.record(both if late_first else both[::-1])

    assert [len(written.moves), written.lost] == [1, [late]]
    watched.judge(external=frozenset({"halfway"}), operators=frozenset({"worker"}))


def claimed(operations):
    """A fresh job, claimed and begun."""
    (claim,) = operations.claim([JobGraph.fresh], 1)
    claim.instance.__dict__["stator"] = claim
    effect_of(claim.instance).save()
    return claim


def complete(operations, claim):
    """Record a move, again while the row is locked by somebody else, as a worker does."""
    written = operations.record([(claim, Moved(JobGraph.halfway))])
    while written.deferred:
        written = operations.record(written.deferred)
    return written


def at_once(acts, order):
    """Call functions together, in threads started in the given order; return their results. The first is a worker's."""
    barrier = Barrier(len(acts))

    def act(number):
        try:
            with acting_as("worker" if number == 0 else "operator"):
                barrier.wait(PATIENCE)
                return acts[number]()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(acts)) as pool:
        futures = {number: pool.submit(act, number) for number in order}
        return [futures[number].result(PATIENCE) for number in range(len(acts))]
