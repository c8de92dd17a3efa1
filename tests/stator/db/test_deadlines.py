"""Timeouts by a date of the row: the poll that finds them, the moves, and the races with events and attempts."""

from datetime import timedelta

import pytest
from django.db.models import F

from stator.db import chores
from stator.db.probe import look
from stator.exceptions import EventRefused
from stator.models import History
from stator.testing import advance, drain
from tests.stator.extensions.refusals.refused import refusals_of
from tests.stator.making import LEASED, ago, at_once, claim_all, operations_of, put, raw, row
from tests.testapp.dated import Offer, Watch

pytestmark = pytest.mark.usefixtures("transactional_db")


@pytest.fixture(params=["vendor", "portable"])
def watches(request):
    return operations_of(Watch, request.param)


def test_row_moves_once_its_date_has_passed_and_null_is_never(watches):
    late, early, never = (put(Watch, alert_after=at) for at in (ago(1), ago(-60), None))
    assert chores.time_out(watches, 10).count == 1
    assert [row(each).state for each in (late, early, never)] == ["down", "up", "up"]
    found = row(late)
    assert (found.state_version, found.state_ready, found.state_claim) == (1, False, None)
    assert chores.time_out(watches, 10).count == 0
    # A date may be computed from columns of the row.
    kept = put(Watch, state="down", alert_after=ago(7000), kept_for=timedelta(hours=1))
    gone = put(Watch, state="down", alert_after=ago(7300), kept_for=timedelta(hours=1))
    chores.time_out(watches, 10)
    assert [row(each).state for each in (kept, gone)] == ["down", "forgotten"]


def test_ready_rows_move_too_and_held_ones_do_not():
    offers = operations_of(Offer)
    ready, held = put(Offer, expires=ago(1)), put(Offer, expires=ago(1), **LEASED)
    assert row(ready).state_ready
    chores.time_out(offers, 10)
    assert [row(each).state for each in (ready, held)] == ["expired", "offered"]


# The poll


def test_row_whose_move_the_database_refuses_is_not_found_by_each_poll(watches, monkeypatch):
    watch = put(Watch, alert_after=ago(1))
    [deadline] = [each for each in watches.deadlines if each.column]
    refusals_of(watches).note(f"up to down: {deadline.reason}", watch.pk, ValueError("no"))
    assert not look(watches)[watches].past


# Workers


def test_worker_does_not_attempt_what_has_expired():
    offer = put(Offer, expires=ago(1), taken_by="ada")
    drain(Offer)
    found = row(offer)
    assert (found.state, found.state_attempts) == ("expired", 0)


def test_row_that_waits_for_its_next_attempt_expires_on_time():
    offer = put(Offer, expires=ago(-60))
    assert drain(Offer) == 1
    assert row(offer).state == "offered"
    advance(61, Offer)
    drain(Offer)
    assert row(offer).state == "expired"


def test_pause_holds_rows_of_a_state_that_workers_attempt_and_no_others():
    offer, watch = put(Offer, expires=ago(1)), put(Watch, alert_after=ago(1))
    Offer.stator.pause()
    Watch.stator.pause()
    drain(Offer, Watch)
    assert (row(offer).state, row(watch).state) == ("offered", "down")
    offers = operations_of(Offer)
    assert not look(offers)[offers].past
    Offer.stator.resume()
    assert look(offers)[offers].past
    drain(Offer)
    assert row(offer).state == "expired"


def test_object_that_is_moved_back_by_hand_past_its_date_times_out_again():
    watch = put(Watch, state="down", alert_after=ago(60), kept_for=timedelta(days=1))
    watch.transition_perform("up", actor="ada", reason="it is up")
    drain(Watch)
    told = History.objects.filter(object_pk=str(watch.pk)).order_by("pk").values_list("source", "to", "actor", "reason")
    assert list(told) == [("down", "up", "ada", "it is up"), ("up", "down", "", "timed out by alert_after")]


# Races


@pytest.mark.postgresql
def test_claim_and_deadline_race_and_one_of_them_has_the_row():
    offers = [operations_of(Offer) for _ in range(2)]
    rows = {put(Offer, expires=ago(1), taken_by="ada").pk for _ in range(50)}
    claims, moves = at_once(lambda: claim_all(offers[0]), lambda: chores.time_out(offers[1], 100).count)
    states = dict(raw(Offer).values_list("pk", "state"))
    assert set(states) == rows
    assert {pk for pk, state in states.items() if state == "offered"} >= {claim.pk for claim in claims}
    moves += chores.time_out(offers[1], 100).count
    assert len(claims) + moves == 50


@pytest.mark.postgresql
@pytest.mark.parametrize("turn", range(5))
def test_event_and_deadline_race_and_one_of_them_wins_once(turn):
    watches, watch = operations_of(Watch), put(Watch, alert_after=ago(1), name=str(turn))

    def send():
        try:
            return Watch.objects.get(pk=watch.pk).stator.send("reset", by="ada").outcome
        except EventRefused:
            return "refused"

    sent, moves = at_once(send, lambda: chores.time_out(watches, 10).count)
    found = row(watch)
    assert (found.state, found.state_version) == ("down", 1)
    assert (sent, moves) in (("moved", 0), ("refused", 1))
    kinds = [told.reason for told in History.objects.filter(object_pk=str(watch.pk), to="down")]
    assert len(kinds) == 1


@pytest.mark.postgresql
def test_date_that_is_put_off_at_the_same_moment_is_heeded():
    watches, watch = operations_of(Watch), put(Watch, alert_after=ago(1))

    def put_off():
        return raw(Watch).filter(pk=watch.pk, state="up").update(alert_after=F("alert_after") + timedelta(hours=1))

    was_up, moves = at_once(put_off, lambda: chores.time_out(watches, 10).count)
    assert (was_up, moves, row(watch).state) in ((1, 0, "up"), (0, 1, "down"))
