"""The log that triggers keep shows the checker a broken protocol; ``tests/simulation`` tries each kind of mistake."""

from contextlib import contextmanager

import pytest

from stator.conf import Settings
from stator.db import operations_for
from stator.db.interface import new_worker_id
from stator.db.outcome_columns import changes_of
from stator.graph.outcomes import Moved, Waiting
from stator.rows import columns
from stator.rows.claimable import Crashes
from tests.faults.checker import kinds_of
from tests.processes import wait_until
from tests.testapp.actor import acting_as
from tests.testapp.faults import Job, JobGraph, effect_of

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

# The server ends a transaction that rests for half a lease, so a shorter one ends those of a process that had to wait.
SETTINGS = Settings(LEASE=2.0, MAX_CRASHES=9)
STATES = [JobGraph.fresh, JobGraph.halfway]
HALFWAY = frozenset({"halfway"})


@contextmanager
def worker(name, mutant=lambda operations: None):
    """One worker as far as the database can tell: what it writes, it writes under its own name."""
    operations = operations_for(Job, SETTINGS, new_worker_id())
    mutant(operations)
    with acting_as(name):
        yield operations


def claim(operations):
    [claim] = next(filter(None, (operations.claim(STATES, 1, crashes=crashes) for crashes in Crashes)))
    claim.instance.__dict__["stator"] = claim
    effect_of(claim.instance).save()
    return claim


def guard_by_key(operations):
    """A record is guarded by the primary key alone."""

    def write(batch, plan, **options):
        for claim, outcome in batch.ended:
            rows = operations.rows.filter(pk=claim.pk)
            rows.update(**changes_of(operations.state_field, outcome, batch.source))
        return {claim.pk: None for claim, _ in batch.ended}, []

    operations.records._write = write


def race(mutant=lambda operations: None):
    """A claims and is held up; its lease runs out, B takes over; A comes back before B is done, and once more after."""
    with worker("a", mutant) as a:
        late = claim(a)
    wait_until(lambda: Job.objects.filter(state_locked_until__lte=columns.Now()).exists())
    with worker("b", mutant) as b:
        b.reap(10)
        current = claim(b)
    with acting_as("a"):
        a.renew([late])
        first = a.record([(late, Waiting(60.0))])
    with acting_as("b"):
        b.record([(current, Moved(JobGraph.halfway))])
    with acting_as("a"):
        return first, a.record([(late, Moved(JobGraph.halfway))])


def test_the_fence_refuses_both_late_writes(watch):
    watched = watch(Job)
    job = Job.objects.create()

    assert [len(written.lost) for written in race()] == [1, 1]

    job.refresh_from_db()
    assert (job.state, job.state_version) == ("halfway", 1)
    watched.judge(external=HALFWAY)


def test_a_mistake_is_seen_in_the_log(watch):
    watched = watch(Job)
    Job.objects.create()

    race(guard_by_key)

    assert "I4" in kinds_of(watched.violations(Job, external=HALFWAY))
