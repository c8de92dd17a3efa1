"""Queries and actions of operators through ``Model.stator``."""

import pytest
from django.test import override_settings

from stator.extensions.reports.models import failure_report, keep_reports
from stator.graph.failures import describe
from stator.models import History
from tests.stator.making import LEASED, ago, put, raw, row
from tests.testapp.basic import Page, Step, StepGraph
from tests.testapp.keys import TextKeyed, UuidKeyed

pytestmark = pytest.mark.django_db


def pks(rows):
    return {instance.pk for instance in rows}


@pytest.fixture
def steps():
    """One row for each thing an operator may ask for."""
    return {
        "ready": put(Step),
        "ready too early": put(Step, state_next_attempt=ago(-60)),
        "due": put(Step, state_ready=False, state_next_attempt=ago(1)),
        "never attempted": put(Step, state_ready=False, state_next_attempt=None),
        "not due": put(Step, state_ready=False, state_next_attempt=ago(-60)),
        "leased": put(Step, **LEASED),
        "failed": put(Step, state_ready=False, state_next_attempt=ago(-60), state_failures=2),
        "suspect": put(Step, state_crashes=1),
        "quarantined": put(Step, state_ready=False, state_crashes=3),
        "external": put(Step, state="outside"),
        "terminal": put(Step, state="done"),
        "stuck": put(Step, state="late", state_changed=ago(3601), state_next_attempt=ago(-60)),
        "late": put(Step, state="late", state_changed=ago(3500), state_next_attempt=ago(-60)),
    }


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        (lambda rows: rows.ready(), {"ready", "suspect"}),
        (lambda rows: rows.due(), {"ready", "suspect", "due", "never attempted"}),
        (lambda rows: rows.leased(), {"leased"}),
        (lambda rows: rows.failed(), {"failed", "quarantined"}),
        (lambda rows: rows.quarantined(), {"quarantined"}),
        (lambda rows: rows.stuck(), {"stuck"}),
        (lambda rows: rows.in_state("late"), {"stuck", "late"}),
        (lambda rows: rows.in_state(StepGraph.outside, "done"), {"external", "terminal"}),
        (lambda rows: rows.in_state("nowhere"), set()),
        (lambda rows: rows.failed().filter(state_failures=2), {"failed"}),
    ],
    ids=["ready", "due", "leased", "failed", "quarantined", "stuck", "one state", "two states", "no state", "both"],
)
def test_operators_find_rows_that_are(steps, ask, expected):
    assert pks(ask(Step.stator)) == {steps[name].pk for name in expected}


def test_counts_tell_of_every_state_of_the_graph_and_of_unknown_ones(steps):
    raw(Step).filter(pk=steps["ready"].pk).update(state="of tomorrow")
    assert Step.stator.counts() == {
        "new": 8, "slow": 0, "late": 2, "outside": 1, "renewed": 0, "done": 1, "failed": 0, "of tomorrow": 1
    }  # fmt: skip
    assert Step.stator.order_by("name").counts()["late"] == 2
    assert Step.stator.in_state("late").counts()["new"] == 0


def test_quarantine_begins_where_the_setting_says():
    step = put(Step, state_ready=False, state_crashes=3)
    with override_settings(STATOR={"MAX_CRASHES": 5}):
        assert not Step.stator.quarantined().exists()
    assert list(Step.stator.quarantined()) == [step]


def test_retry_has_rows_attempted_now_with_a_clean_record(steps):
    left = row(steps["leased"])
    assert Step.stator.retry() == 10
    again = raw(Step).filter(state__in=["new", "late"], state_claim=None)
    # Those from quarantine keep so many crashes that they are attempted apart.
    assert set(again.values_list("state_ready", "state_failures", "state_crashes")) == {(True, 0, 0), (True, 0, 2)}
    # As early as without a due time, and still other than if something else made it due: that is not undone.
    assert all(one.state_next_attempt == one.state_changed for one in again)
    assert row(steps["leased"]).__dict__ | {"_state": 0} == left.__dict__ | {"_state": 0}
    assert not row(steps["external"]).state_ready
    assert not row(steps["terminal"]).state_ready
    assert not History.objects.exists()


def test_unlock_ends_claims_and_only_those(steps):
    assert Step.stator.unlock() == 1
    found = row(steps["leased"])
    assert (found.state_claim, found.state_locked_until, found.state_ready) == (None, None, True)
    assert not row(steps["not due"]).state_ready
    assert Step.stator.unlock() == 0


def report(instance, message="no", error=ValueError):
    failure = describe(error(message))
    keep_reports("default", type(instance)._meta.label_lower, [
        failure_report(type(instance)._meta.label_lower, instance.pk, instance.state, failure, "0" * 12)
    ])  # fmt: skip
    return failure


@pytest.mark.parametrize("model", [UuidKeyed, TextKeyed])
def test_rows_are_found_by_their_report(model):
    reported, _ = model.objects.create(), model.objects.create(**({"slug": "b"} if model is TextKeyed else {}))
    failure = report(reported)
    assert list(model.stator.with_report()) == [reported]
    assert list(model.stator.with_report(fingerprint=failure.fingerprint)) == [reported]
    assert list(model.stator.with_report(error="KeyError")) == []


def test_operators_see_rows_that_the_default_manager_hides():
    page = put(Page, title="a", hidden=True)
    assert not Page.visible.exists()
    assert list(Page.stator.ready()) == [page]
    assert Page.stator.filter(pk=page.pk).move("review") == 1
    assert Page.stator.retry() == 1
    assert row(page).state == "review"
