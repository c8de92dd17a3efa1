"""All that is read about the models of one database to say what is wrong."""

import pytest

from stator.explain import kinds
from stator.models import Pause, Problem, ProblemKind, Worker
from stator.overview.survey import survey
from tests.stator.making import ago, put
from tests.testapp.explained import Errand
from tests.testapp.operators import Parcel

pytestmark = pytest.mark.django_db


def errands():
    return survey("default", [Errand]).models["testapp.errand"]


def test_each_model_has_its_own_pauses_and_all_are_together():
    Errand.stator.pause("new")
    Parcel.stator.pause("packed")
    found = survey("default", [Errand, Parcel])
    assert {label: [pause.state for pause in one.pauses] for label, one in found.models.items()} == {
        "testapp.errand": ["new"], "testapp.parcel": ["packed"],
    }  # fmt: skip
    assert found.pauses == list(Pause.objects.order_by("pk"))


@pytest.mark.parametrize("columns", [{}, {"state_ready": False, "state_next_attempt": ago(60)}])
def test_model_needs_a_worker_once_an_object_is_ready_or_due(columns):
    assert not errands().needs_worker
    put(Errand, **columns)
    assert errands().needs_worker
    Worker.objects.create(id="a" * 12, host="oak", pid=7, version="1", models=["testapp.errand"], database="default")
    assert not errands().needs_worker


@pytest.mark.parametrize(("code", "needs"), [("no_worker", True), ("elsewhere", False)])
def test_model_that_knows_workers_of_its_own_says_whether_it_needs_one(monkeypatch, code, needs):
    group = Problem("unserved", "They wait.", {"reason": code, "group": "all"}, where="testapp.Errand", level="error")
    own = ProblemKind("unserved", model="testapp.errand", find=lambda found: [group])
    monkeypatch.setattr(kinds, "_added", [own])
    put(Errand)
    assert errands().unserved == [group]
    assert errands().needs_worker is needs
