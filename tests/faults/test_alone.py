"""Objects that lost many leases: each in a process of its own, beside which everything else goes on."""

import os
import signal

import psutil
import pytest

from stator.conf import Settings
from stator.db import operations_for
from stator.db.interface import new_worker_id
from stator.rows.claimable import Crashes
from tests.faults.test_recovery import Stream
from tests.processes import wait_until
from tests.testapp.faults import Job, ThreadJob

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]


def suspect_of(model, **columns):
    """An object that lost two leases."""
    made = model.objects.create(**columns)
    # The server ends a session that is idle in a transaction for half of its lease, as on a crowded machine.
    operations, reaper = (operations_for(model, Settings(LEASE=lease), new_worker_id()) for lease in (1.0, 60.0))
    for crashes in (Crashes.NONE, Crashes.FEW):
        assert len(operations.claim(list(operations.graph.automatic_states), 1, crashes=crashes)) == 1
        wait_until(lambda: reaper.reap(1))
    return made


def isolated(worker):
    """The processes in which a worker attempts objects alone; not those that watch over them."""
    children = psutil.Process(worker.pid).children()
    return [child for child in children if "stator.extensions.isolation" in command_of(child)]


def are_gone(processes):
    """Whether all have ended; there may be two, for a look may be older than the claim."""
    assert processes
    return all(is_gone(each) for each in processes)


def is_gone(process):
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def command_of(process):
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        # It has ended since, and its worker has yet to notice.
        return []


def test_others_of_its_model_and_of_all_models_go_on_beside_it(watch, fleet, gate):
    watched, stream = watch(Job, ThreadJob), Stream()
    suspect = suspect_of(Job, gate=str(gate))
    workers = fleet("testapp.Job", "testapp.ThreadJob")
    worker = workers.start()

    own = {"label": "testapp.job", "object_pk": str(suspect.pk)}
    workers.until(stream.until(lambda: workers.starts(worker, **own).exists()))
    assert isolated(worker)
    for each in (Job, ThreadJob):
        other = each.objects.create()
        workers.until(lambda each=each, other=other: each.objects.filter(pk=other.pk, state="done").exists())
    assert Job.objects.filter(pk=suspect.pk, state="fresh", state_claim__isnull=False).exists()
    # Held for longer than its lease: the worker renews it.
    since = Job.objects.get(pk=suspect.pk).state_locked_until
    workers.until(lambda: Job.objects.get(pk=suspect.pk).state_locked_until > since)
    gate.touch()
    workers.finish(Job)
    watched.judge()


def test_it_is_handed_back_when_its_worker_stops_or_is_killed(watch, fleet, gate):
    watched = watch(Job, ThreadJob)
    # Nobody takes it when its lease runs out.
    workers, ending, processes = fleet(STATOR_LEASE=600), {}, []
    for model in (Job, ThreadJob):
        suspect_of(model, gate=str(gate))
        workers.labels = (model._meta.label,)
        ending[model] = worker = workers.start()
        workers.until(lambda worker=worker: workers.starts(worker).exists())
        processes += isolated(worker)
    os.kill(workers.alive.pop(ending[ThreadJob].name).pid, signal.SIGKILL)
    workers.stop()
    wait_until(lambda: are_gone(processes))
    for model in (Job, ThreadJob):
        left = model.objects.get()
        told = (left.state_claim, left.state_ready, left.state_attempts, left.state_crashes)
        assert told == (None, True, 3, 2), "it has not ended this worker"
    watched.judge(external=frozenset({"fresh"}))
