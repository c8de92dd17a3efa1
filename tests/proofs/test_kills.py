"""R5.5: all of several workers are killed at random moments and started again; every object reaches its end."""

from threading import Event

import pytest

from tests.faults.events import Kind
from tests.faults.report import Report
from tests.faults.test_recovery import waits_after_expiry
from tests.proofs.proof import percentile
from tests.sizes import size
from tests.testapp.faults import Job, ThreadJob
from tests.testapp.harmed import Booking

pytestmark = [pytest.mark.proof, pytest.mark.fault, pytest.mark.django_db(transaction=True)]

MODELS = (Job, ThreadJob, Booking)
WORKERS, KILLS = 3, size(100, 2)
# Of each model so many are not done when workers are killed.
BUSY = 40
# Of every five kills one comes while the workers start, and four while they work.
STARTING, MAX_START, MAX_WORK = 0.2, 1.5, 2.5
# No object is put into quarantine, which would be an end of its own.
MANY = 100_000


def keep_busy(choice):
    """Have objects to do, in threads, on the event loop and with effects in the transaction of the outcome."""
    for model in MODELS:
        missing = BUSY - model.objects.exclude(state="done").count()
        model.objects.bulk_create(model(seconds=choice.uniform(0, 0.5)) for _ in range(missing))


def left():
    return sum(model.objects.exclude(state="done").count() for model in MODELS)


def wait_for_the_moment(workers, choice, *, starting):
    """Wait until workers may be killed: a while after they were started, or after one of them began to work."""
    if starting:
        Event().wait(choice.uniform(0, MAX_START))
        return
    workers.until(lambda: any(workers.starts(worker).exists() for worker in workers.alive.values()))
    Event().wait(choice.uniform(0, MAX_WORK))
    # They may have done everything meanwhile.
    keep_busy(choice)
    workers.until(lambda: sum(model.stator.leased().count() for model in MODELS) > 2 * WORKERS)


def test_every_object_is_done_though_all_workers_are_killed_again_and_again(proof, watch, fleet):
    proof = proof("R5.5", full=2400, short=500)
    watched = watch(*MODELS)
    workers = fleet(*(model._meta.label for model in MODELS), STATOR_CONCURRENCY=10, STATOR_MAX_CRASHES=MANY)

    for kill in range(1, KILLS + 1):
        keep_busy(proof.choice)
        for _ in range(WORKERS):
            workers.start()
        # The last kill is never one of workers that hold nothing.
        wait_for_the_moment(workers, proof.choice, starting=kill < KILLS and proof.choice.random() < STARTING)
        workers.kill_all()
        proof.progress(f"kill {kill} of {KILLS}, {left()} objects are not done")
        assert proof.left, f"{kill} of {KILLS} kills took {proof.seconds:.0f} s"
    for _ in range(WORKERS):
        workers.start()
    workers.until(lambda: proof.progress(f"{left()} objects are not done") or not left(), proof.left)
    workers.stop()

    histories = [watched.history(model) for model in MODELS]
    report = Report("", histories)
    kinds = [kind for history in histories for kind in history.kinds()]
    assert kinds.count(Kind.REAP) > KILLS / 2, "workers were killed when they held nothing"
    waits = sorted(wait for history in histories for wait in waits_after_expiry(history))
    proof.lost, proof.doubled = report.lost, report.doubled
    proof.figures |= {
        "kills of all workers": KILLS, "workers": WORKERS, "objects": kinds.count(Kind.CREATE),
        "attempts": kinds.count(Kind.CLAIM), "leases lost": kinds.count(Kind.REAP),
        "claimed again after s, median": percentile(waits, 0.5), "longest": waits[-1],
    }  # fmt: skip
    assert set(Booking.objects.values_list("booked", flat=True)) == {2}, "an effect in the transaction was doubled"
    proof.judge()
    watched.judge(max_crashes=MANY)
