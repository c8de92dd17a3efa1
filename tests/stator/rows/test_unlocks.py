"""Claims that operators end: who holds rows, and rows that no worker takes at once."""

import re

import pytest

from stator.db.interface import new_token
from stator.models import Worker
from stator.rows.unlocks import held_by, holders_of
from tests.stator.making import ago, put, raw
from tests.testapp.explained import Errand

pytestmark = pytest.mark.django_db

WORKER = "a" * 12


def held(seconds=60, **options):
    claim = {"state_claim": new_token(WORKER), "state_locked_until": ago(-seconds), "state_attempted": ago(5)}
    return put(Errand, state_ready=False, state_attempts=2, **claim, **options)


def register(**values):
    given = {"host": "oak", "pid": 7, "version": "1", "models": ["testapp.errand"], "database": "default"}
    return Worker.objects.create(id=WORKER, **given | values)


def test_claims_are_read_in_two_statements_the_latest_lease_first(django_assert_max_num_queries):
    worker = register(models=["testapp.errand", "gone.model", "nonsense"])
    errands = [held(seconds) for seconds in (30, 90, 60)]
    with django_assert_max_num_queries(2):
        holders = holders_of(raw(Errand))
    assert [holder.pk for holder in holders] == [errands[number].pk for number in (1, 2, 0)]
    assert {(holder.worker, holder.place, holder.attempt) for holder in holders} == {(WORKER, "oak, process 7", 2)}
    # Those of a worker, which may serve models of another release.
    put(Errand, state_claim=new_token("b" * 12), state_locked_until=ago(-60), state_attempted=ago(5))
    found = held_by(Worker.objects.get(pk=worker.pk))
    assert {(each.label, each.pk, each.state) for each in found} == {
        ("testapp.Errand", one.pk, "new") for one in errands
    }
    assert all(each.running > 0 for each in found)


@pytest.mark.parametrize(
    ("worker", "lease", "said", "may_run"),
    [
        ({}, 60, "is run by worker aaaaaaaaaaaa on oak, process 7, which is alive; its lease has", True),
        ({"heartbeat": ago(86400)}, 60, "silent for 1 d.*; its lease has", True),
        ({"heartbeat": ago(86400)}, -60, "silent for 1 d.*; its lease ended", False),
        ({"stopped": ago(30)}, -60, "which has stopped; its lease ended", False),
        (None, 60, "is held by worker aaaaaaaaaaaa; its lease has", True),
    ],
)
def test_holder_says_whether_its_attempt_may_still_run(worker, lease, said, may_run):
    if worker is not None:
        register()
        raw(Worker).update(**worker)
    held(lease)
    (holder,) = holders_of(raw(Errand))
    assert re.search(said, str(holder))
    assert f"{holder.pk}: attempt 2, which began " in str(holder)
    assert holder.may_run is may_run
