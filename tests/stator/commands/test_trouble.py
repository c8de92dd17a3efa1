"""Objects of a model that need attention, the worst first."""

import pytest

from stator.commands.trouble import troubled
from stator.overview.survey import survey
from tests.stator.commands.errands import held
from tests.stator.making import ago, change, put
from tests.testapp.explained import Errand, ErrandGraph

pytestmark = pytest.mark.django_db


def found(limit=10):
    return [(what, pk) for pk, what, *_ in troubled(survey("default", [Errand]).models["testapp.errand"], limit)]


def test_those_that_only_people_can_help_come_first(monkeypatch):
    monkeypatch.setattr(ErrandGraph.outside, "expect_within", 60)
    overdue = put(Errand, state_ready=False, state_next_attempt=ago(600))
    late = put(Errand, **held(-60))
    stuck = put(Errand, state="outside", state_ready=False, state_changed=ago(600))
    quarantined = put(Errand, state_ready=False, state_crashes=9)
    unknown = put(Errand, state_ready=False)
    change(unknown, state="mislaid")
    assert [what for what, _ in found()] == ["unknown state", "quarantined", "lease ran out", "stuck", "overdue"]
    assert [pk for _, pk in found()] == [one.pk for one in (unknown, quarantined, late, stuck, overdue)]


def test_no_more_are_returned_than_were_asked_for():
    for _ in range(3):
        put(Errand, state_ready=False, state_crashes=9)
    assert len(found(2)) == 2
