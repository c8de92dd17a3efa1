"""Attempts not before a date of the row: who is ready, what the poll finds, and what a claim refuses."""

from datetime import timedelta

import pytest
from django.db import connection
from django.db.models import F

from stator.db import chores
from stator.db.probe import look
from stator.testing import advance, drain
from tests.stator.making import ago, at_once, change, claim_all, operations_of, put, raw, row
from tests.stator.running import work
from tests.testapp.dated import Circular

pytestmark = pytest.mark.usefixtures("transactional_db")


@pytest.fixture(params=["vendor", "portable"])
def cards(request):
    return operations_of(Circular, request.param)


def by_sql(card, at):
    with connection.cursor() as cursor:
        cursor.execute("UPDATE testapp_circular SET send_after = %s WHERE id = %s", [at, card.pk])


# Ready or not


def test_new_row_is_ready_if_its_date_has_come_or_is_null(cards):
    late, early, none = (put(Circular, send_after=at) for at in (ago(1), ago(-60), None))
    assert [row(each).state_ready for each in (late, early, none)] == [True, False, True]
    assert {claim.pk for claim in claim_all(cards)} == {late.pk, none.pk}
    Circular.objects.bulk_create(Circular(name=f"b{number}", send_after=ago(60 - 120 * number)) for number in range(2))
    assert dict(raw(Circular).exclude(name="").values_list("name", "state_ready")) == {"b0": True, "b1": False}


def test_row_that_enters_the_state_is_ready_if_its_date_has_come():
    for at, ready in ((ago(1), True), (ago(-60), False), (None, True)):
        card = put(Circular, state="answered", send_after=at)
        card.transition_perform("queued")
        found = row(card)
        assert (found.state_ready, found.state_next_attempt) == (ready, None)


def test_computed_date_decides_when_a_worker_has_moved_the_row_there(cards):
    early, late = (put(Circular, send_after=ago(100), patience=timedelta(seconds=each)) for each in (500, 50))
    work(Circular)
    assert [row(each).state for each in (early, late)] == ["reminding", "closed"]
    assert not row(early).state_ready
    advance(401, Circular)
    drain(Circular)
    assert row(early).state == "closed"


def test_row_waits_for_the_later_of_its_date_and_the_back_off(cards):
    broken = put(Circular, name="broken", send_after=ago(1))
    drain(Circular)
    assert row(broken).state_failures == 1
    by_sql(broken, ago(-20))
    advance(25, Circular)
    assert not look(cards)[cards].due
    advance(10, Circular)
    assert look(cards)[cards].due
    by_sql(broken, ago(-100))
    assert chores.mark_ready(cards, 10) == 1
    # Its date decides now.
    found = row(broken)
    assert (found.state_ready, found.state_next_attempt) == (False, None)
    assert not look(cards)[cards].due
    by_sql(broken, ago(1))
    assert look(cards)[cards].due
    chores.mark_ready(cards, 10)
    assert row(broken).state_ready


def test_postponed_row_is_not_attempted_before_its_interval_is_over(cards):
    later = put(Circular, name="later", send_after=ago(100))
    drain(Circular)
    assert not look(cards)[cards].due
    assert row(later).state_attempts == 1
    advance(61, Circular)
    assert drain(Circular) == 1
    assert row(later).state_attempts == 2


# The poll


def test_row_that_waited_for_its_date_takes_its_place_in_line_by_it(cards):
    first, second = put(Circular, send_after=ago(-60)), put(Circular)
    change(first, state_changed=ago(86400), send_after=ago(5))
    change(second, state_changed=ago(10))
    chores.mark_ready(cards, 10)
    assert [claim.pk for claim in claim_all(cards)] == [second.pk, first.pk]


# The claim


def test_claim_does_not_take_a_ready_row_whose_date_was_moved(cards):
    card, other = put(Circular, send_after=ago(1)), put(Circular)
    by_sql(card, ago(-60))
    assert [claim.pk for claim in claim_all(cards)] == [other.pk]
    found = row(card)
    assert (found.state_ready, found.state_claim, found.state_attempts) == (False, None, 0)
    by_sql(card, ago(1))
    chores.mark_ready(cards, 10)
    assert [claim.pk for claim in claim_all(cards)] == [card.pk]


@pytest.mark.postgresql
@pytest.mark.parametrize("turn", range(3))
def test_date_that_is_moved_at_the_same_moment_is_heeded(cards, turn):
    rows = {put(Circular, send_after=ago(1), name=str(turn)).pk for _ in range(20)}

    def put_off():
        return raw(Circular).filter(state_claim=None).update(send_after=F("send_after") + timedelta(hours=1))

    claims, moved = at_once(lambda: claim_all(cards), put_off)
    held = {claim.pk for claim in claims}
    assert held <= rows
    assert (
        set(raw(Circular).filter(state_claim=None, send_after__gt=ago(-60)).values_list("pk", flat=True)) >= rows - held
    )
    assert len(held) + moved >= 20
    assert not claim_all(cards)


# By hand


def test_retry_and_due_do_not_override_the_date(cards):
    card = put(Circular, send_after=ago(-60), state_failures=2)
    assert card.stator.due(None) is False
    assert Circular.stator.due(None) == 0
    assert Circular.stator.retry(actor="ada") == 1
    assert row(card).state_failures == 0
    assert not claim_all(cards)
    assert Circular.stator.due().count() == Circular.stator.ready().count() == 0
    assert card.stator.due(3600) is True
    by_sql(card, ago(1))
    assert not look(cards)[cards].due


def test_due_rows_are_those_whose_date_has_come():
    late, early, none = (put(Circular, send_after=at) for at in (ago(1), ago(-60), None))
    assert set(Circular.stator.ready()) == {late, none}
    assert set(Circular.stator.due()) == {late, none}
    raw(Circular).filter(pk=early.pk).update(send_after=ago(30), state_changed=ago(7200))
    assert set(Circular.stator.due()) == {late, early, none}
    assert not Circular.stator.overdue().exists()
    by_sql(early, ago(100))
    assert set(Circular.stator.overdue()) == {early}


# Workers


def test_deadline_and_date_of_one_state_are_both_heeded():
    expired, kept = (put(Circular, send_after=ago(-60), expires=at) for at in (ago(1), ago(-30)))
    work(Circular)
    assert [row(each).state for each in (expired, kept)] == ["closed", "queued"]
