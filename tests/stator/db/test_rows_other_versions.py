"""Rows in states that only another version of the code knows: nothing here claims, moves, changes or reports them."""

import pytest

from stator.db import chores
from stator.db.claims import claim_one
from stator.db.interface import new_token, new_worker_id
from stator.db.probe import look
from stator.extensions.related.duties import reopen
from stator.models import History, Report
from stator.rows.claimable import Crashes
from stator.rows.life import LIFE
from stator.worker.dispatcher import lanes_of
from tests.stator.making import LEASED, ago, automatic, change, claim_all, put, raw, row
from tests.testapp.basic import Step
from tests.testapp.fairness import Enquiry
from tests.testapp.power import Site
from tests.testapp.waiting import Rollout

pytestmark = pytest.mark.usefixtures("transactional_db")

# By age, in shares, and after others.
MODELS = [Step, Enquiry, Rollout]


def of_newer_code(model, **columns):
    instance = put(model)
    change(instance, state="newer", **columns)
    return instance


def before_and_after(instance):
    return raw(type(instance)).filter(pk=instance.pk).values().get()


@pytest.mark.parametrize("model", MODELS)
def test_no_way_to_claim_takes_such_a_row(make, model):
    operations = make(model)
    instance = of_newer_code(model)
    for number, crashes in enumerate(Crashes):
        change(instance, state_crashes=number)
        before = before_and_after(instance)
        for states in (*(lane.states for lane in lanes_of(operations)), *([state] for state in automatic(operations))):
            assert operations.claim(states, 100, crashes=crashes) == []
        assert claim_one(operations, instance.pk) is None
    assert not look(operations)[operations].has_rows
    assert before_and_after(instance) == before


COLUMNS = [
    {},
    {"state_ready": False, "state_next_attempt": ago(10)},
    {"state_ready": False, "state_next_attempt": None},
    {"state_ready": True, "state_next_attempt": ago(-86400)},
    {"state_ready": False, "state_changed": ago(10**8)},
]


def test_no_duty_touches_such_a_row(make):
    operations = make()
    instances = [of_newer_code(Step, **columns) for columns in COLUMNS]
    before = list(map(before_and_after, instances))
    for duty in (
        chores.mark_ready, chores.settle, reopen, chores.time_out, chores.rename, chores.move_matching,
        chores.delete_due,
    ):  # fmt: skip
        duty(operations, 100)
    operations.reap(100)
    assert list(map(before_and_after, instances)) == before


def test_change_of_a_watched_field_leaves_the_state_to_newer_code():
    site = of_newer_code(Site, state_ready=False)
    before = before_and_after(site)
    Site.objects.filter(pk=site.pk).update(domain="another.example")
    found = raw(Site).get(pk=site.pk)
    found.domain = "a third.example"
    found.save()
    after = before_and_after(site)
    # The wish is another one, whatever the state means.
    assert {name for name in after if after[name] != before[name]} == {"domain", LIFE}


def test_lease_of_a_newer_worker_that_died_ends_without_a_report(make):
    """It never quarantines: only newer code knows whether the state has a quarantine."""
    operations = make(MAX_CRASHES=3)
    instance = of_newer_code(Step)
    for crashes in (1, 2, 2, 2):
        change(instance, state_ready=False, state_claim=new_token(new_worker_id()), state_locked_until=ago(1))
        assert len(operations.reap(100)) == 1
        found = row(instance)
        assert (found.state, found.state_ready) == ("newer", True)
        assert (found.state_claim, found.state_crashes) == (None, crashes)
    assert not Report.objects.exists()
    assert not History.objects.exists()
    assert claim_all(operations) == []


def test_lease_of_a_newer_worker_may_be_longer_than_any_here(make):
    operations = make()
    instance = of_newer_code(Step, **LEASED)
    before = before_and_after(instance)
    assert operations.reap(100) == []
    assert before_and_after(instance) == before
    # In a state that is known here, it shows that a clock was set back.
    change(instance, state="new")
    assert len(operations.reap(100)) == 1
