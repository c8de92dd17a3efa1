"""The columns that each event in the life of a row changes, on rows as the database has them."""

from datetime import timedelta
from uuid import uuid4

import pytest
from django.db.models import Q

from stator.rows import columns
from tests.stator.making import LEASED, ago, put, raw, row
from tests.testapp.explained import Errand, ErrandGraph

pytestmark = pytest.mark.django_db

CRASHED = {"state_attempts": 3, "state_failures": 2, "state_crashes": 2, "state_version": 7}


def changed(changes, **before):
    """The row of an errand after changes."""
    errand = put(Errand, **before)
    assert raw(Errand).filter(pk=errand.pk).update(**changes) == 1
    return row(errand)


@pytest.mark.parametrize("state", ["limited", "outside", "done"])
def test_row_that_enters_a_state_begins_with_clean_counters_and_without_a_claim(state):
    entered = changed(columns.entering(Errand.state_graph.states[state]), **LEASED, **CRASHED)
    assert (entered.state, entered.state_ready, entered.state_next_attempt) == (state, state == "limited", None)
    assert (entered.state_claim, entered.state_locked_until, entered.state_attempted) == (None, None, None)
    assert (entered.state_attempts, entered.state_failures, entered.state_crashes) == (0, 0, 0)
    assert entered.state_version == 8


def test_state_with_a_first_delay_is_due_after_its_interval(monkeypatch):
    monkeypatch.setattr(ErrandGraph.limited, "attempt_immediately", False)
    entered = changed(columns.entering(ErrandGraph.limited))
    assert not entered.state_ready
    assert entered.state_next_attempt - entered.state_changed == timedelta(seconds=ErrandGraph.limited.try_interval)


def test_claim_counts_the_attempt_and_notes_its_time():
    token, until = uuid4(), ago(-60)
    claimed = changed(columns.claiming(token, until), state_attempts=3)
    assert (claimed.state_claim, claimed.state_locked_until, claimed.state_ready) == (token, until, False)
    assert claimed.state_attempts == 4
    assert claimed.state_attempted > ago(60)


@pytest.mark.parametrize(("due", "held"), [(None, True), (ago(5), True), (ago(-86400), False)])
def test_row_that_is_not_due_yet_loses_only_its_mark(due, held):
    claimed = changed(columns.claiming_due(uuid4(), columns.after(60)), state_next_attempt=due, state_attempts=3)
    assert not claimed.state_ready
    assert (claimed.state_claim is not None, claimed.state_attempts) == (held, 4 if held else 3)
    assert (claimed.state_locked_until is None) == (claimed.state_attempted is None) == (not held)


def test_attempt_that_ends_resets_crashes_and_keeps_the_state():
    stayed = changed(columns.staying(columns.after(60), 5), **LEASED, **CRASHED)
    assert (stayed.state, stayed.state_claim, stayed.state_ready) == ("new", None, False)
    assert (stayed.state_failures, stayed.state_crashes, stayed.state_version) == (5, 0, 7)
    assert stayed.state_next_attempt > ago(0)


@pytest.mark.parametrize("delay", [0.0, 30.0])
def test_released_row_gets_its_attempt_back(delay):
    released = changed(columns.releasing(delay), **LEASED, **CRASHED)
    assert (released.state_claim, released.state_attempts, released.state_crashes) == (None, 2, 2)
    assert released.state_ready == (delay == 0)
    assert (released.state_next_attempt is None) == (delay == 0)


@pytest.mark.parametrize(
    ("crashes", "tenant", "after", "ready"), [(0, 0, 1, True), (1, 0, 2, True), (2, 0, 3, False), (2, 1, 2, True)]
)
def test_lease_that_runs_out_counts_a_crash_until_the_quarantine(crashes, tenant, after, ready):
    """Rows of tenant 1 have no quarantine: their count stops below it."""
    reaped = changed(columns.reaping(3, Q(tenant=1)), **LEASED, state_crashes=crashes, tenant=tenant)
    assert (reaped.state_crashes, reaped.state_ready, reaped.state_claim) == (after, ready, None)


def test_parked_row_is_found_as_parked_and_never_as_due():
    parked = changed(columns.parking())
    assert raw(Errand).get(columns.parked()) == parked
    assert [raw(Errand).filter(condition).count() for condition in columns.come_due()] == [0, 0]
    assert raw(Errand).update(**columns.reopening()) == 1
    assert not raw(Errand).filter(columns.parked()).exists()
    assert row(parked).state_ready


def test_rows_are_due_when_their_time_has_passed_or_they_have_none():
    past, future, none = (put(Errand, state_next_attempt=moment) for moment in (ago(5), ago(-86400), None))
    by_time, without = ({found.pk for found in raw(Errand).filter(condition)} for condition in columns.come_due())
    assert (by_time, without) == ({past.pk}, {none.pk})
    assert future.pk not in by_time | without


@pytest.mark.parametrize("changes", [columns.retrying(), columns.unlocking()])
def test_operator_makes_a_row_ready_at_once(changes):
    made = changed(changes, state_ready=False, state_next_attempt=ago(-600), **CRASHED)
    assert (made.state_ready, made.state_next_attempt) == (True, None)


def test_retry_forgets_errors_and_unlock_ends_the_claim_alone():
    retried, unlocked = (
        changed(columns.retrying(), **LEASED, **CRASHED),
        changed(columns.unlocking(), **LEASED, **CRASHED),
    )
    assert (retried.state_failures, retried.state_crashes, retried.state_claim) == (0, 0, LEASED["state_claim"])
    assert (unlocked.state_failures, unlocked.state_crashes, unlocked.state_claim) == (2, 2, None)
