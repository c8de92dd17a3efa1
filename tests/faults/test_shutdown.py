"""Workers that are told to stop under load (F13): they are gone in time, and nothing that they held stays locked."""

import os
import signal
from threading import Event as Flag
from time import monotonic

import psutil
import pytest

from tests.faults.fleet import logged
from tests.processes import wait_until
from tests.sizes import CROWDED
from tests.testapp.faults import Job, ThreadJob

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

DEADLINE = 5.0
SETTINGS = {"STATOR_LEASE": 10, "STATOR_SHUTDOWN_TIMEOUT": DEADLINE, "STATOR_CONCURRENCY": 8, "STATOR_THREADS": 8}
# Handlers on the loop in two processes, and in threads in one.
MODELS = pytest.mark.parametrize(("model", "processes"), [(Job, 2), (ThreadJob, 1)], ids=["async-2", "thread-1"])
SHORT, LONG = 1.0, 60.0


def loaded(workers, model, processes):
    """A worker that is at work on short and long attempts, with more of both in line."""
    model.objects.bulk_create(model(seconds=seconds) for _ in range(8 * processes) for seconds in (SHORT, LONG))
    worker = workers.start("--processes", str(processes))
    workers.until(lambda: workers.starts(worker).count() >= 8 * processes)
    return worker


def started(workers, worker, model, seconds):
    """The objects of that length which had been begun."""
    begun = set(workers.starts(worker).values_list("object_pk", flat=True))
    return model.objects.filter(seconds=seconds, pk__in=begun)


@MODELS
def test_terminated_worker_finishes_what_is_short_and_hands_back_the_rest(watch, fleet, model, processes):
    watched = watch(model)
    workers = fleet(model._meta.label, **SETTINGS)
    worker = loaded(workers, model, processes)
    asked = monotonic()

    code = worker.stop()

    took = monotonic() - asked
    assert code == 0, worker.output()
    assert took <= DEADLINE + 1 + CROWDED
    assert not model.stator.leased().exists()
    assert not started(workers, worker, model, SHORT).filter(state="fresh").exists()
    long = started(workers, worker, model, LONG)
    assert long.exists()
    # They had begun, so the attempt stays counted.
    assert set(long.values_list("state", "state_ready", "state_attempts", "state_crashes")) == {("fresh", True, 1, 0)}
    watched.judge(external=frozenset({"fresh", "halfway"}))


def test_one_signal_to_all_processes_is_one(watch, fleet):
    """Ctrl-C and systemd signal the whole group, and the supervisor passes the signal on once more."""
    watched = watch(ThreadJob)
    workers = fleet("testapp.ThreadJob", **SETTINGS)
    ThreadJob.objects.bulk_create(ThreadJob(seconds=SHORT) for _ in range(16))
    worker = workers.start("--processes", "2")
    workers.until(lambda: workers.starts(worker).count() >= 8)
    # One that is still starting ends at once, and has nothing to say.
    workers.until(lambda: len(logged(worker, "stator.ready")) == 2)

    worker.kill(signal.SIGTERM)

    assert worker.wait() == 0, worker.output()
    assert {event["why"] for event in logged(worker, "stator.stopping")} == {"stopped"}
    assert len(logged(worker, "stator.stopping")) == 2
    assert not ThreadJob.stator.leased().exists()
    begun = started(workers, worker, ThreadJob, SHORT)
    assert begun.exists()
    assert not begun.filter(state="fresh").exists()
    watched.judge(external=frozenset({"fresh", "halfway"}))


def test_second_signal_ends_it_at_once(watch, fleet):
    """To all processes, as Ctrl-C twice; their handlers are in threads, which nothing ends."""
    watched, number = watch(ThreadJob), signal.SIGINT
    workers = fleet("testapp.ThreadJob", **{**SETTINGS, "STATOR_LEASE": 60, "STATOR_SHUTDOWN_TIMEOUT": 30})
    worker = loaded(workers, ThreadJob, 2)
    worker.kill(number)
    workers.until(lambda: len(logged(worker, "stator.stopping")) == 2)
    asked = monotonic()

    # The kernel merges signals that come before a process has run; whoever presses Ctrl-C does so again.
    while worker.returncode is None and monotonic() - asked < LONG:
        worker.kill(number)
        Flag().wait(1.0)

    assert worker.returncode == 130, worker.output()
    assert [event["why"] for event in logged(worker, "stator.stopping")].count("forced") == 2
    assert not ThreadJob.stator.leased().exists()
    assert set(ThreadJob.objects.values_list("state_crashes", flat=True)) == {0}
    watched.judge(external=frozenset({"fresh", "halfway"}))


def test_worker_that_alone_gets_a_signal_stops_gracefully_and_is_replaced(watch, fleet):
    watched = watch(Job)
    workers = fleet("testapp.Job", **{**SETTINGS, "STATOR_SHUTDOWN_TIMEOUT": 3})
    worker = loaded(workers, Job, 2)
    # Both are full of attempts that last until the deadline, so neither has ended when it gets the second signal.
    workers.until(lambda: Job.stator.leased().filter(seconds=LONG).count() == 16)
    pids = {event["pid"] for event in logged(worker, "stator.starting")} - {worker.pid}
    assert len(pids) == 2, worker.output()

    for _ in range(2):
        # To the workers, as "kill" does, and not to their supervisor.
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        workers.until(lambda: len(logged(worker, "stator.stopping")) == 2)

    workers.until(lambda: len(logged(worker, "stator.ready")) == 4)
    assert {event["why"] for event in logged(worker, "stator.stopping")} == {"stopped"}
    assert {event["exit_code"] for event in logged(worker, "stator.worker_died")} == {0}
    assert not started(workers, worker, Job, SHORT).filter(state="fresh").exists()
    assert worker.stop() == 0, worker.output()
    assert not Job.stator.leased().exists()
    watched.judge(external=frozenset({"fresh", "halfway"}))


def test_killed_parent_takes_its_workers_along(watch, fleet):
    watched = watch(Job)
    workers = fleet("testapp.Job", **{**SETTINGS, "STATOR_SHUTDOWN_TIMEOUT": 2})
    worker = loaded(workers, Job, 2)
    pids = {event["pid"] for event in logged(worker, "stator.starting")}
    assert worker.pid not in pids, "it is supervised"

    worker.send(signal.SIGKILL)

    wait_until(lambda: len(logged(worker, "stator.ended")) == 2, message=worker.output)
    wait_until(lambda: not any(map(psutil.pid_exists, pids)), message=worker.output)
    assert {event["why"] for event in logged(worker, "stator.stopping")} == {"orphaned"}
    assert not Job.stator.leased().exists()
    assert set(Job.objects.values_list("state_crashes", flat=True)) == {0}
    watched.judge(external=frozenset({"fresh", "halfway"}))
