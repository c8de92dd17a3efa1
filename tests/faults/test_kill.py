"""Workers that die without a word: killed at any moment (F1), or by a handler that takes its process along (F4)."""

import random
import signal
from threading import Event

import pytest

from tests.faults.events import Kind
from tests.faults.fleet import RECOVERY, logged
from tests.faults.test_recovery import percentiles, waits_after_expiry
from tests.testapp.faults import Bomb, Effect, Job

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

WORKERS = 4
# So many objects at least are not done when a worker is killed.
BUSY = 150
# Soon again after a crash.
SOON = {"STATOR_LEASE": 2, "STATOR_REAP_INTERVAL": 0.5, "STATOR_SHUTDOWN_TIMEOUT": 2}


def keep_busy():
    """Have enough to do, for as long as workers are killed."""
    if Job.objects.exclude(state="done").count() < BUSY:
        Job.objects.bulk_create(Job(seconds=random.uniform(0.05, 0.5)) for _ in range(BUSY))


def kill_one(workers):
    """Kill a worker at a random moment at which it is at work, and start another in its place."""
    name = random.choice(list(workers.alive))
    workers.until(lambda: stopped_at_work(workers, workers.alive[name]))
    workers.kill(name)
    workers.start()


def stopped_at_work(workers, worker):
    """Whether it held something when it was stopped at a random moment; otherwise it goes on."""
    # It may be a new process, for which the others leave nothing while it starts.
    keep_busy()
    Event().wait(random.uniform(0.05, 0.5))
    worker.stand_still()
    held = Job.objects.exclude(state_claim=None).values_list("state_claim", flat=True)
    if workers.starts(worker, claim__in=list(held)).exists():
        return True
    worker.send(signal.SIGCONT)
    return False


def crashed_claims(history):
    return sum(kind is Kind.REAP for kind in history.kinds())


def test_no_object_is_lost_when_workers_are_killed(watch, fleet, thorough):
    kills = 200 if thorough else 2
    watched = watch(Job)
    workers = fleet("testapp.Job", STATOR_MAX_CRASHES=1000)
    for _ in range(WORKERS):
        workers.start()

    for _ in range(kills):
        kill_one(workers)
    workers.finish(Job, timeout=240)

    history = watched.history(Job)
    waits = waits_after_expiry(history)
    assert crashed_claims(history) >= kills / 2
    print(
        f"{kills} kills among {Job.objects.count()} objects ended {crashed_claims(history)} claims, "
        f"claimed again after {percentiles(waits)}"
    )
    watched.judge(max_crashes=1000, reap_slack=RECOVERY)


def quarantined(crashes):
    """How many lost so many leases, after which these workers attempt them no more."""
    return Bomb.objects.filter(state_crashes=crashes, state_ready=False, state_claim=None).count()


def test_handler_that_exits_with_0_does_not_leave_the_fleet_a_worker_short(watch, fleet):
    watched = watch(Bomb)
    Bomb.objects.create(kind="exit well")
    workers = fleet("testapp.Bomb", **SOON, STATOR_MAX_CRASHES=1)
    worker = workers.start("--processes", "1")

    workers.until(lambda: quarantined(1) == 1)
    workers.stop()

    assert {died["exit_code"] for died in logged(worker, "stator.worker_died")} == {0}
    watched.judge(reap_slack=RECOVERY, max_crashes=1)


def test_handlers_that_kill_their_process_are_quarantined_and_spare_the_others(watch, fleet):
    watched = watch(Bomb)
    bombs = [Bomb.objects.create(kind=kind) for kind in ("exit", "segfault", "abort")]
    others = [Bomb.objects.create(kind="harmless") for _ in range(24)]
    workers = fleet("testapp.Bomb", **SOON, STATOR_CONCURRENCY=8, STATOR_MAX_CRASHES=2)
    worker = workers.start("--processes", "2")

    workers.until(lambda: Bomb.objects.filter(state="done").count() == len(others))
    workers.until(lambda: quarantined(2) == len(bombs))
    workers.stop()

    # One may have been claimed beside another that went off first; after a crash each is alone.
    assert {Effect.objects.filter(object_pk=str(bomb.pk)).count() for bomb in bombs} <= {1, 2}
    crashes = [event.new.crashes for event in watched.history(Bomb).events if event.pk in {str(o.pk) for o in others}]
    assert max(crashes) <= 1
    assert len(logged(worker, "stator.worker_died")) <= len(bombs)
    assert {died["exit_code"] for died in logged(worker, "stator.worker_died")} <= {3, -11, -6}
    assert {died["pk"] for died in logged(worker, "stator.isolated_process_died")} == {str(bomb.pk) for bomb in bombs}
    watched.judge(reap_slack=RECOVERY, max_crashes=2)
