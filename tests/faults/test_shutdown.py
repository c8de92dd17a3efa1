"""Workers that are told to stop under load (F13): they are gone in time, and nothing that they held stays locked."""

import signal
from time import monotonic

import pytest

from tests.faults.fleet import CROWDED
from tests.testapp.faults import Job, ThreadJob

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

DEADLINE = 5.0
SETTINGS = {"STATOR_LEASE": 10, "STATOR_SHUTDOWN_TIMEOUT": DEADLINE, "STATOR_CONCURRENCY": 8, "STATOR_THREADS": 8}
MODELS = pytest.mark.parametrize("model", [Job, ThreadJob], ids=["async", "thread"])
PROCESSES = pytest.mark.parametrize("processes", [1, 2])
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


@PROCESSES
@MODELS
def test_terminated_worker_finishes_what_is_short_and_hands_back_the_rest(watch, fleet, model, processes):
    watched = watch(model)
    workers = fleet(model._meta.label, **SETTINGS)
    worker = loaded(workers, model, processes)
    asked = monotonic()

    code = worker.stop(DEADLINE + 10)

    took = monotonic() - asked
    assert code == 0, worker.output()
    assert took <= DEADLINE + 1 + CROWDED
    assert not model.stator.leased().exists()
    assert not started(workers, worker, model, SHORT).filter(state="fresh").exists()
    long = started(workers, worker, model, LONG)
    assert long.exists()
    assert set(long.values_list("state", "state_ready", "state_attempts", "state_crashes")) == {("fresh", True, 0, 0)}
    watched.judge(external=frozenset({"fresh", "halfway"}))


@PROCESSES
@MODELS
def test_second_signal_ends_it_at_once(watch, fleet, model, processes):
    watched = watch(model)
    workers = fleet(model._meta.label, **{**SETTINGS, "STATOR_LEASE": 60, "STATOR_SHUTDOWN_TIMEOUT": 30})
    worker = loaded(workers, model, processes)
    asked = monotonic()

    # Two different ones: a signal that is still pending swallows another of its kind.
    worker.send(signal.SIGTERM)
    worker.send(signal.SIGINT)

    assert worker.wait(60) == 130, worker.output()
    assert monotonic() - asked < 15
    assert not model.stator.leased().exists()
    assert set(model.objects.values_list("state_crashes", flat=True)) == {0}
    watched.judge(external=frozenset({"fresh", "halfway"}))
