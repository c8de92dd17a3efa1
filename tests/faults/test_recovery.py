"""Rows of a dead worker are attempted again at once, at the default concurrency, and delay no other row."""

from time import monotonic

import pytest
from django.db import connection

from tests.faults.events import Kind
from tests.faults.fleet import REAP_INTERVAL
from tests.sizes import CROWDED
from tests.testapp.faults import Job, ThreadJob

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

HELD, LONG = 30, 2.0
# Seconds from the end of a lease to the next claim, as promised; and on a machine that has other work.
PROMISED = {"postgresql": REAP_INTERVAL + 1.0, "sqlite": REAP_INTERVAL + 2.0, "mysql": REAP_INTERVAL + 2.0}


def promised():
    return PROMISED[connection.vendor] + CROWDED


def waits_after_expiry(history):
    """Seconds from the end of each lost lease to the next claim of its object."""
    waits, expired = [], {}
    for event, kind in zip(history.events, history.kinds(), strict=True):
        if kind is Kind.REAP:
            expired[event.pk] = event.old.locked_until
        elif kind is Kind.CLAIM and event.pk in expired:
            waits.append((event.at - expired.pop(event.pk)).total_seconds())
    return sorted(waits)


def waits_from_creation(history):
    """Seconds from the making of each object to its first claim."""
    made, waits = {}, []
    for event, kind in zip(history.events, history.kinds(), strict=True):
        if kind is Kind.CREATE:
            made[event.pk] = event.at
        elif kind is Kind.CLAIM and event.pk in made:
            waits.append((event.at - made.pop(event.pk)).total_seconds())
    return sorted(waits)


def percentiles(waits):
    return f"p50 {waits[len(waits) // 2]:.2f} s, p99 {waits[int(len(waits) * 0.99) - 1]:.2f} s, most {waits[-1]:.2f} s"


class Stream:
    """Objects of another model, one every fifth of a second while somebody waits for something."""

    def __init__(self):
        self.due = 0.0

    def until(self, condition):
        """A condition for the fleet that keeps the stream going."""

        def met():
            if monotonic() >= self.due:
                self.due = monotonic() + 0.2
                ThreadJob.objects.create()
            return condition()

        return met


def test_rows_of_a_dead_worker_begin_again_together_and_no_other_model_waits(watch, fleet, gate):
    watched = watch(Job, ThreadJob)
    workers, stream = fleet("testapp.Job", "testapp.ThreadJob"), Stream()
    victim = workers.start()
    Job.objects.bulk_create(Job(seconds=LONG, gate=str(gate)) for _ in range(HELD))
    workers.until(lambda: workers.starts(victim, state="fresh").count() == HELD)
    survivor = workers.start(STATOR_LEASE=60)
    workers.until(stream.until(lambda: workers.starts(survivor).exists()))
    workers.kill(victim.name)
    gate.touch()

    workers.until(stream.until(lambda: not Job.objects.exclude(state="done").exists()), 180)
    workers.finish(ThreadJob)

    again = waits_after_expiry(watched.history(Job))
    others = waits_from_creation(watched.history(ThreadJob))
    print(f"{len(again)} lost leases: {percentiles(again)}; {len(others)} of another model: {percentiles(others)}")
    assert len(again) == HELD
    assert again[-1] <= promised()
    assert others[-1] <= 1.0 + CROWDED
    watched.judge(reap_slack=promised(), claim_slack=promised())
