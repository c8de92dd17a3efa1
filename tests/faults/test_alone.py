"""Objects that lost many leases: each in a process of its own, beside which everything else goes on."""

import os
import signal

import psutil
import pytest

from stator.conf import Settings
from stator.db import operations_for
from stator.db.interface import new_worker_id
from stator.rows.claimable import Crashes
from tests.faults.events import Kind
from tests.faults.fleet import RECOVERY, logged
from tests.faults.test_recovery import Stream, percentiles, waits_from_creation
from tests.processes import wait_until
from tests.testapp.faults import Bomb, Effect, Job, ThreadJob

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

MAX_CRASHES = 3


def suspect_of(model, **columns):
    """An object that lost two leases."""
    made = model.objects.create(**columns)
    # The server ends a session that is idle in a transaction for half of its lease, as on a crowded machine.
    operations, reaper = (operations_for(model, Settings(LEASE=lease), new_worker_id()) for lease in (1.0, 60.0))
    for crashes in (Crashes.NONE, Crashes.FEW):
        assert len(operations.claim(list(operations.graph.automatic_states), 1, crashes=crashes)) == 1
        wait_until(lambda: reaper.reap(1))
    return made


def crashes_of(history, rows):
    """The most leases that each of the rows lost in a row."""
    wanted = {str(row.pk) for row in rows}
    found = dict.fromkeys(wanted, 0)
    for event in history.events:
        if event.pk in wanted and event.new is not None:
            found[event.pk] = max(found[event.pk], event.new.crashes)
    return found


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


def test_object_that_ends_its_process_ends_two_workers_and_is_alone_the_third_time(watch, fleet):
    """By a signal; in test_kill.py there are other ends beside it."""
    watched, stream = watch(Bomb, ThreadJob), Stream()
    bomb = Bomb.objects.create(kind="segfault")
    others = [Bomb.objects.create(kind="harmless") for _ in range(40)]
    workers = fleet("testapp.Bomb", "testapp.ThreadJob")
    worker = workers.start("--processes", "2")

    workers.until(stream.until(lambda: Bomb.stator.quarantined().filter(pk=bomb.pk).exists()))
    workers.until(lambda: not Bomb.objects.exclude(pk=bomb.pk).exclude(state="done").exists())
    workers.finish(ThreadJob)

    assert Effect.objects.filter(object_pk=str(bomb.pk), note="segfault").count() == MAX_CRASHES
    assert len(logged(worker, "stator.worker_died")) == MAX_CRASHES - 1
    [died] = logged(worker, "stator.isolated_process_died")
    assert (died["pk"], died["exit_code"]) == (str(bomb.pk), -signal.SIGSEGV)
    history = watched.history(Bomb)
    # Some were beside it the second time as well, and none the third.
    assert max(crashes_of(history, others).values()) <= MAX_CRASHES - 1
    last = max(event.at for event in history.events if event.pk == str(bomb.pk) and event.new.attempts == MAX_CRASHES)
    reaped = [event.at for event in history.of(Kind.REAP)]
    assert sum(at >= last for at in reaped) == 1
    print(f"another model: {percentiles(waits_from_creation(watched.history(ThreadJob)))}")
    watched.judge(reap_slack=RECOVERY)


def test_objects_beside_it_lose_one_lease_where_one_at_a_time_is_tried_again(watch, fleet):
    watched = watch(Bomb)
    bomb = Bomb.objects.create(kind="exit")
    others = [Bomb.objects.create(kind="harmless") for _ in range(40)]
    workers = fleet("testapp.Bomb", STATOR_CRASHED_AT_ONCE=1)
    workers.start("--processes", "2")

    workers.until(lambda: Bomb.stator.quarantined().filter(pk=bomb.pk).exists())
    workers.until(lambda: not Bomb.objects.exclude(pk=bomb.pk).exclude(state="done").exists())
    workers.stop()

    assert max(crashes_of(watched.history(Bomb), others).values()) == 1
    watched.judge(reap_slack=RECOVERY)


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
    workers.until(lambda: not Job.objects.exclude(state="done").exists())
    wait_until(lambda: not isolated(worker), message="it is not kept where nothing is left to attempt alone")
    workers.stop()
    watched.judge()


def test_it_is_released_when_its_worker_stops(watch, fleet, gate):
    watched = watch(Job)
    suspect_of(Job, gate=str(gate))
    workers = fleet("testapp.Job", STATOR_LEASE=60)
    worker = workers.start()
    workers.until(lambda: workers.starts(worker).exists())
    processes = isolated(worker)
    workers.stop()
    wait_until(lambda: are_gone(processes))
    job = Job.objects.get()
    assert (job.state_claim, job.state_ready, job.state_attempts, job.state_crashes) == (None, True, 3, 2)
    watched.judge(external=frozenset({"fresh"}))


def test_it_is_handed_back_when_its_worker_is_killed(watch, fleet, gate):
    watched = watch(ThreadJob)
    suspect = suspect_of(ThreadJob, gate=str(gate))
    # Nobody takes it when its lease runs out.
    workers = fleet("testapp.ThreadJob", STATOR_LEASE=600)
    worker = workers.start()
    workers.until(lambda: workers.starts(worker).exists())
    processes = isolated(worker)
    os.kill(worker.pid, signal.SIGKILL)
    wait_until(lambda: are_gone(processes))
    suspect.refresh_from_db()
    handed_back = (suspect.state_claim, suspect.state_ready, suspect.state_attempts, suspect.state_crashes)
    assert handed_back == (None, True, 3, 2), "it has not ended this worker"
    watched.judge(external=frozenset({"fresh"}))
