"""The checker against broken protocols: each mutant of the operations, led through a plain race, must be caught."""

from contextlib import contextmanager

import pytest
from django.db.models import F

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


class Party:
    """One worker as far as the database can tell: it claims, starts, renews, reaps and records under its own name."""

    def __init__(self, name, mutant=None):
        self.name = name
        self.operations = operations_for(Job, SETTINGS, new_worker_id())
        if mutant is not None:
            mutant(self.operations)

    @contextmanager
    def acting(self):
        with acting_as(self.name):
            yield self.operations

    def claim(self):
        with self.acting() as operations:
            claims = next(filter(None, (operations.claim(STATES, 1, crashes=crashes) for crashes in Crashes)), [])
            for claim in claims:
                claim.instance.__dict__["stator"] = claim
                effect_of(claim.instance).save()
        (claim,) = claims
        return claim

    def record(self, claim, outcome):
        with self.acting() as operations:
            return operations.record([(claim, outcome)])

    def move_on(self, claim):
        return self.record(claim, Moved(next(iter(claim.state.children))))

    def renew(self, claim):
        with self.acting() as operations:
            return operations.renew([claim])

    def reap(self):
        with self.acting() as operations:
            return operations.reap(10)


def write_where(**guard):
    """A mutant whose record statement is guarded by less than the claim and the state."""

    def mutate(operations):
        def write(batch, plan, **options):
            accepted = {}
            for claim, outcome in batch.ended:
                given = {name: getattr(claim, source) for name, source in guard.items()}
                if operations.rows.filter(**given).update(**changes_of(operations.state_field, outcome, batch.source)):
                    accepted[claim.pk] = None
            return accepted, []

        operations.records._write = write

    return mutate


def renew_by_pk(operations):
    """A mutant that extends the lease of a row whoever holds it."""

    def renew(claims):
        rows = operations.rows.filter(pk__in=[claim.pk for claim in claims], state_claim__isnull=False)
        rows.update(state_locked_until=columns.after(operations.settings.LEASE))
        return set()

    operations.renew = renew


def reap_at_will(operations):
    """A mutant that reaps without looking at the clock."""
    operations.lost = lambda: [operations.rows.filter(state_claim__isnull=False)]


def claim_carelessly(guarded, **wrong):
    """A mutant that claims rows whether they are free or not, or does not count its attempts."""

    def mutate(operations):
        def claim_rows(states, limit, token, crashes):
            rows = operations.claimable(states) if guarded else operations.rows
            picked = list(rows.values_list("pk", flat=True)[:limit])
            changes = {**columns.claiming(token, operations.lease_end()), **wrong}
            operations.rows.filter(pk__in=picked).update(**changes)
            return list(operations.rows.filter(pk__in=picked))

        operations.claims._claim_rows = claim_rows

    return mutate


def let_expire():
    wait_until(lambda: Job.objects.filter(state_locked_until__lte=columns.Now()).exists())


def race(mutant=None):
    """A claims and is held up; its lease runs out, B takes over; A comes back before B is done, and once more after."""
    a, b = Party("a", mutant), Party("b", mutant)
    late = a.claim()
    let_expire()
    b.reap()
    current = b.claim()
    a.renew(late)
    first = a.record(late, Waiting(60.0))
    b.move_on(current)
    return first, a.move_on(late)


def test_the_fence_refuses_both_late_writes(watch):
    watched = watch(Job)
    job = Job.objects.create()

    first, second = race()

    assert [len(written.lost) for written in (first, second)] == [1, 1]
    job.refresh_from_db()
    assert (job.state, job.state_version) == ("halfway", 1)
    watched.judge(external=frozenset({"halfway"}))


@pytest.mark.parametrize(
    ("mutant", "rule"),
    [
        (write_where(pk="pk"), "I4"),
        (write_where(pk="pk", state="state"), "I4"),
        (write_where(pk="pk", state_version="version"), "I4"),
        (renew_by_pk, "I1"),
        (claim_carelessly(guarded=True, state_attempts=F("state_attempts")), "I6"),
    ],
    ids=["pk only", "state only", "version only", "renewal without claim", "claim without accounting"],
)
def test_a_mutant_is_caught_in_a_race(watch, mutant, rule):
    watched = watch(Job)
    Job.objects.create()

    race(mutant)

    assert rule in kinds_of(watched.violations(Job, external=frozenset({"halfway"})))


def test_a_pk_only_guard_is_caught_after_the_other_has_finished(watch):
    watched = watch(Job)
    Job.objects.create()
    a, b = Party("a", write_where(pk="pk")), Party("b")
    late = a.claim()
    let_expire()
    b.reap()
    b.move_on(b.claim())

    a.move_on(late)

    assert "I2" in kinds_of(watched.violations(Job, quiet=False))


def test_reaping_before_expiry_is_caught(watch):
    watched = watch(Job)
    Job.objects.create()
    a, b = Party("a"), Party("b", reap_at_will)
    a.claim()

    b.reap()

    assert kinds_of(watched.violations(Job, quiet=False)) == {"I1"}


def test_claiming_what_is_claimed_is_caught(watch):
    watched = watch(Job)
    Job.objects.create()
    Party("a").claim()

    Party("b", claim_carelessly(guarded=False)).claim()

    assert {"I1"} <= kinds_of(watched.violations(Job, quiet=False))


def test_a_late_write_that_nobody_forestalled_is_accepted(watch):
    watched = watch(Job)
    job = Job.objects.create()
    a = Party("a")
    late = a.claim()
    let_expire()

    written = a.move_on(late)

    assert not written.lost
    job.refresh_from_db()
    assert job.state == "halfway"
    watched.judge(external=frozenset({"halfway"}))
