"""All that is read about the models of one database to say what is wrong."""

from dataclasses import replace
from uuid import uuid4

import pytest
from django.db import OperationalError, connection
from django.db.models import IntegerField, Q
from django.db.models.functions import Lower
from django.test.utils import CaptureQueriesContext, isolate_apps

from stator.checks.tables import check_expressions
from stator.extensions.problems import kinds
from stator.extensions.problems import survey as module
from stator.extensions.problems.survey import survey
from stator.extensions.reports import groups as errors
from stator.extensions.reports.models import failure_report
from stator.graph import State, StateGraph
from stator.graph.failures import describe
from stator.models import Problem, ProblemKind, StateField, StatorModel
from tests.commanding import run
from tests.stator.making import ago, put
from tests.testapp.basic import Step
from tests.testapp.explained import Errand
from tests.testapp.operators import Letter, Parcel, ParcelGraph

pytestmark = pytest.mark.django_db


def errands():
    return survey("default", [Errand]).models["testapp.errand"]


@pytest.mark.parametrize(("code", "needs"), [("no_worker", True), ("elsewhere", False)])
def test_model_that_knows_workers_of_its_own_says_whether_it_needs_one(monkeypatch, code, needs):
    group = Problem("unserved", "They wait.", {"reason": code, "group": "all"}, where="testapp.Errand", level="error")
    own = ProblemKind("unserved", model="testapp.errand", find=lambda found: [group])
    monkeypatch.setattr(kinds, "ADDED", [own])
    put(Errand)
    assert errands().unserved == [group]
    assert errands().needs_worker is needs


@isolate_apps("tests.testapp")
@pytest.mark.parametrize(
    ("condition", "why"),
    [
        (Q(pk=0), "database 'default' has no table testapp_absent of testapp.Absent"),
        (Q(typo=1), "AbsentGraph.asked.when((AND: ('typo', 1))): Cannot resolve keyword 'typo' into field"),
    ],
    ids=["no table", "wrong condition"],
)
def test_model_that_cannot_be_read_is_a_problem_and_hides_no_other(condition, why):
    class AbsentGraph(StateGraph):
        asked = State(externally_progressed=True)
        done = State()
        asked.when(condition).to(done)

    class Absent(StatorModel):
        state = StateField(AbsentGraph)

        class Meta:
            app_label = "testapp"

    put(Parcel, state_ready=False, state_failures=1)
    found = kinds.problems_in(survey("default", [Absent, Parcel]))
    [incomplete] = [one for one in found if one.code == "incomplete"]
    assert (incomplete.level, incomplete.where) == ("error", "testapp.Absent")
    assert incomplete.sentence.startswith(why)
    assert {one.code for one in found if one.where == "testapp.Parcel"} == {"no_worker", "failing"}
    # The check finds what needs no database.
    assert [error.id for error in check_expressions(Absent)] == ["stator.E110"] * ("typo" in why)


@isolate_apps("tests.testapp")
def test_check_tells_of_a_wrong_name_in_the_order_of_claims():
    class Sorted(StatorModel):
        state = StateField(ParcelGraph)
        urgency = IntegerField(default=0)

        class Meta:
            app_label = "testapp"

        class StatorMeta:
            priority = "urgency"
            then = Lower("typo")

    [error] = check_expressions(Sorted)
    assert error.msg.startswith("Sorted.StatorMeta.then: Cannot resolve keyword 'typo' into field")


FAILS = {
    "numbers": lambda monkeypatch: monkeypatch.setattr(module, "depths", failing_for(module.depths)),
    "columns": lambda monkeypatch: monkeypatch.setattr(module, "probe_columns", failing_for(module.probe_columns)),
    "errors": lambda monkeypatch: monkeypatch.setattr(errors, "_failing_in", failing_for(errors._failing_in)),
    "states of errors": lambda monkeypatch: monkeypatch.setattr(errors, "_judge", failing_for(errors._judge)),
    "waiting": lambda monkeypatch: monkeypatch.setattr(
        module, "KINDS", [replace(kind, reads=kind.reads and failing_for(kind.reads)) for kind in kinds.KINDS]
    ),
    "kind of its own": lambda monkeypatch: monkeypatch.setattr(
        kinds, "ADDED", [ProblemKind("own", model="testapp.errand", find=failing_for(list))]
    ),
}


def failing_for(read):
    """The same read, which fails for errands by an error of the database."""

    def look(*given, **named):
        if "errand" in str([getattr(one, "model", one) for one in given]).lower():
            Errand.objects.extra(where=["no such thing"]).first()
        return read(*given, **named)

    return look


@pytest.fixture
def failing(db):
    for model in (Errand, Parcel):
        row = put(model, state_ready=False, state_failures=1)
        failure_report(model._meta.label_lower, row.pk, row.state, describe(ValueError("no")), "").save()


@pytest.mark.parametrize("what", FAILS)
def test_model_whose_look_fails_is_a_problem_and_hides_no_other(monkeypatch, failing, what):
    FAILS[what](monkeypatch)
    standing = kinds.problems_in(survey("default", [Errand, Parcel]))
    [unread] = [one for one in standing if one.code == "unread"]
    assert (unread.where, unread.level) == ("testapp.Errand", "error")
    assert unread.sentence.startswith("not everything is shown: ")
    assert "\n" not in unread.sentence
    assert "failing" in {one.code for one in standing if one.where == "testapp.Parcel"}


def test_every_place_says_that_a_look_has_failed(monkeypatch, failing, admin_client):
    FAILS["numbers"](monkeypatch)
    assert "testapp.Errand: not everything is shown" in run("stator", "doctor", code=1)
    assert "not everything is shown" in admin_client.get("/admin/stator/overview/").text
    FAILS["errors"](monkeypatch)
    assert "not everything is shown" in run("stator", "status")
    run("stator", "errors")


@pytest.mark.needs("metrics")
def test_metrics_say_that_a_look_has_failed(monkeypatch, failing, admin_client, settings):
    settings.STATOR = {**settings.STATOR, "TOKEN": "a-token-of-at-least-thirty-two-bytes"}
    FAILS["numbers"](monkeypatch)
    told = admin_client.get("/stator/metrics/", headers={"Authorization": f"Bearer {settings.STATOR['TOKEN']}"}).text
    assert 'stator_troubles{code="unread",level="error",model="testapp.errand"} 1.0' in told
    assert 'stator_troubles{code="failing",level="warning",model="testapp.parcel"} 1.0' in told


def held(model):
    """An object of a model that a worker holds."""
    return put(model, state_ready=False, state_claim=uuid4(), state_locked_until=ago(-60), state_attempted=ago(20))


def test_number_of_statements_does_not_grow_with_the_models():
    """But held objects are read by types of keys, or model by model if a database unites no limited queries."""
    models = [Errand, Parcel, Step, Letter]
    for model in models:
        held(model)
    asked = []
    for some in (models[:1], models):
        with CaptureQueriesContext(connection) as queries:
            found = survey("default", some).models.values()
        assert [one.depths.leased for one in found] == [1] * len(some)
        asked.append(len(queries))
    unites = connection.features.supports_slicing_ordering_in_compound
    assert asked[1] - asked[0] == (1 if unites else len(models) - 1)


def test_models_are_read_one_by_one_if_they_cannot_be_read_at_once(monkeypatch):
    put(Parcel, state_ready=False, state_failures=1)
    held(Errand)

    def refused(rows_of):
        raise OperationalError("canceling statement due to statement timeout")

    def told():
        return [(one.code, one.where, one.count) for one in kinds.problems_in(survey("default", [Errand, Parcel]))]

    at_once = told()
    monkeypatch.setattr(module, "counts", refused)
    assert told() == at_once
