"""Late writes of a holder whose lease ran out, before and after the next holder is done (F2), with the time between."""

import pytest

from stator.conf import Settings
from stator.db import operations_for
from stator.db.interface import new_worker_id
from stator.graph.outcomes import Moved, Waiting
from stator.rows import columns
from stator.rows.claimable import Crashes
from tests.processes import wait_until
from tests.testapp.actor import acting_as
from tests.testapp.faults import Job, JobGraph, effect_of

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

# The server ends a transaction that rests for half a lease, so a shorter one ends those of a process that had to wait.
SETTINGS = Settings(LEASE=2.0, MAX_CRASHES=9)
STATES = [JobGraph.fresh, JobGraph.halfway]


def claim(operations):
    [claim] = next(filter(None, (operations.claim(STATES, 1, crashes=crashes) for crashes in Crashes)))
    claim.instance.__dict__["stator"] = claim
    effect_of(claim.instance).save()
    return claim


def test_the_fence_refuses_both_late_writes(watch):
    """A claims and is held up; its lease runs out, B takes over; A comes back before B is done, and once more after."""
    watched = watch(Job)
    job = Job.objects.create()
    a, b = (operations_for(Job, SETTINGS, new_worker_id()) for _ in range(2))
    with acting_as("a"):
        late = claim(a)
    wait_until(lambda: Job.objects.filter(state_locked_until__lte=columns.Now()).exists())
    with acting_as("b"):
        b.reap(10)
        current = claim(b)
    with acting_as("a"):
        a.renew([late])
        assert a.record([(late, Waiting(60.0))]).lost == [late]
    with acting_as("b"):
        b.record([(current, Moved(JobGraph.halfway))])
    with acting_as("a"):
        assert a.record([(late, Moved(JobGraph.halfway))]).lost == [late]
    job.refresh_from_db()
    assert (job.state, job.state_version) == ("halfway", 1)
    watched.judge(external=frozenset({"halfway"}))
