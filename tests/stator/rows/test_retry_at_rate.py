"""Retrying at a rate."""

from uuid import uuid4

import pytest
from django.db.models import QuerySet

from stator.models import Action, History
from stator.rows.due_times import AT_ONCE, retry_spread
from tests.stator.making import ago, put, raw, row
from tests.testapp.operators import Parcel

pytestmark = pytest.mark.django_db


def failed(**columns):
    return put(Parcel, state_ready=False, state_failures=2, state_next_attempt=ago(-5000), **columns)


def by(actor):
    return Action.of(Parcel, "retry", actor)


def retry(*pks, per_minute=60, most=1000, actor="anna"):
    return retry_spread(
        raw(Parcel), [list(pks)], per_minute=per_minute, most=most, action=Action.of(Parcel, "retry", actor)
    )


def seconds_until_due(instance):
    return -(ago(0) - row(instance).state_next_attempt).total_seconds()


class TestRetrySpread:
    def test_rows_come_due_one_after_the_other_with_a_clean_record(self):
        rows = [failed(), failed(), failed(), put(Parcel, state_ready=False, state_crashes=3)]
        assert retry(*[one.pk for one in rows], per_minute=6) == 4
        first = row(rows[0]).state_next_attempt
        assert [(row(one).state_next_attempt - first).total_seconds() for one in rows] == [0, 10, 20, 30]
        assert {(row(one).state_failures, row(one).state_crashes, row(one).state_ready) for one in rows[:3]} == {
            (0, 0, False)
        }
        # It was in quarantine, so it is attempted apart until it has succeeded once.
        assert (row(rows[3]).state_crashes, row(rows[3]).state_ready) == (2, False)
        assert {(act.actor, act.reason, act.kind) for act in History.objects.all()} == {
            ("anna", "retried at 6 a minute", "hand")
        }

    def test_rate_holds_over_pages_and_statements(self):
        pks = [failed().pk for _ in range(AT_ONCE + 20)]
        retry_spread(
            raw(Parcel), [pks[:15], pks[15:]], per_minute=60, most=1000, action=Action.of(Parcel, "retry", "anna")
        )
        due = raw(Parcel).order_by("state_next_attempt").values_list("state_next_attempt", flat=True)
        # The statements of a crowded machine are some seconds apart.
        assert AT_ONCE + 18 <= (due.last() - due.first()).total_seconds() < AT_ONCE + 60

    def test_rate_is_not_exceeded_where_rows_are_left_alone(self):
        rest = [put(Parcel, state="delivered", state_ready=False).pk for _ in range(3)]
        later = [failed() for _ in range(2)]
        retry_spread(raw(Parcel), [rest, [one.pk for one in later]], per_minute=1, most=1000, action=by("anna"))
        assert [round(seconds_until_due(one), -1) for one in later] == [180, 240]

    def test_claimed_rows_and_those_at_rest_are_left_alone(self):
        held = put(Parcel, state_ready=False, state_claim=uuid4(), state_locked_until=ago(-60), state_failures=2)
        rest = put(Parcel, state="delivered", state_ready=False)
        assert retry(held.pk, rest.pk) == 0
        assert (row(held).state_failures, row(rest).state_next_attempt) == (2, None)

    def test_ends_at_the_most_and_reads_no_further(self):
        pages = iter([[failed().pk for _ in range(3)], [failed().pk], pytest.fail])
        rows: QuerySet = raw(Parcel)
        assert retry_spread(rows, pages, per_minute=60, most=4, action=by("anna")) == 4
        assert next(pages) is pytest.fail
