"""How much is claimed: by the limit of a state, by what the model lets a worker claim, and without quarantine."""

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from stator.db.claims import Claims
from stator.db.suspensions import ResumptionPace
from stator.extensions.limits.models import Limit
from stator.extensions.refusals import refusals
from stator.models import Report
from stator.rows.claimable import Crashes
from tests.sizes import PATIENCE
from tests.stator.making import automatic, begun_beside, raw
from tests.stator.running import work
from tests.testapp.power import Ride, Transfer, Visitor

pytestmark = pytest.mark.django_db(transaction=True)


def test_claim_that_a_constraint_of_the_model_refuses_takes_nothing(make, monkeypatch):
    monkeypatch.setattr(refusals, "PACE_OF_CLAIMS", ResumptionPace(0.0))
    made = make(Transfer)
    Transfer.objects.create()

    def refuse(execute, sql, params, many, context):
        raise IntegrityError("there is one already")

    if connection.vendor == "postgresql" and type(made.claims) is not Claims:
        pytest.skip("its claims are not sent by Django's cursor")
    with connection.execute_wrapper(lambda *call: refuse(*call) if "UPDATE" in call[1] else call[0](*call[1:])):
        assert made.claim(list(made.graph.automatic_states), 1) == []
    assert len(made.claim(list(made.graph.automatic_states), 1)) == 1


def test_limited_state_is_claimed_up_to_its_limit_over_all_workers(make):
    Visitor.objects.bulk_create(Visitor() for _ in range(5))
    states = list(Visitor.state_graph.automatic_states)
    first, second = make(Visitor), make(Visitor)
    taken = first.claim(states, 1)
    taken += second.claim(states, 10)
    assert len(taken) == 2
    assert first.claim(states, 10) == []
    Visitor.stator.filter(pk=taken[0].pk).unlock()
    assert len(second.claim(states, 10)) == 1


def test_row_of_a_state_without_quarantine_is_claimed_however_many_leases_it_lost(make):
    ride = Ride.objects.create()
    made = make(Ride)
    for _ in range(made.settings.MAX_CRASHES + 2):
        claims = [made.claim(list(made.graph.automatic_states), 1, crashes=crashes) for crashes in Crashes]
        assert sum(map(len, claims)) == 1
        QuerySet(Ride).update(state_locked_until=Now())
        assert len(made.reap(10)) == 1
    ride.refresh_from_db()
    assert ride.state_ready
    assert ride.state_crashes == made.settings.MAX_CRASHES - 1
    assert not Report.objects.exists()
    assert work(Ride).moved == {("testapp.ride", "done"): 1}


# States whose concurrency is limited over all workers: they are claimed by one worker at a time


@pytest.mark.postgresql
@pytest.mark.parametrize("is_known", [True, False], ids=["known", "new"])
def test_claim_waits_for_one_that_is_not_committed_and_counts_what_that_took(make, is_known):
    first, second = make(Visitor), make(Visitor)
    states = automatic(first)
    if is_known:
        with transaction.atomic():
            Limit.lock("default", first.label, states[0].name)
    Visitor.objects.bulk_create(Visitor() for _ in range(5))
    with transaction.atomic():
        taken = first.claim(states, 1)
        beside = begun_beside(lambda: second.claim(states, 10))
        assert not beside.done(), "the claim of another worker did not wait"
    taken += beside.result(PATIENCE)
    assert len(taken) == raw(Visitor).filter(state_claim__isnull=False).count() == 2
