"""How many rows of several kinds there are, in one statement."""

from typing import Any

import pytest
from django.db.models import Q

from stator.db import bounded_counts as module
from stator.db.bounded_counts import Tally, by_state, by_value, in_all, in_order, question, tally
from stator.rows import columns
from tests.stator.making import ago, put, raw
from tests.testapp.explained import Errand
from tests.testapp.operators import Parcel

pytestmark = pytest.mark.django_db

LATE = Q(state_changed__lte=columns.after(-60))


def counted(*kinds: Any, most: int = 100) -> dict[int, list[Tally]]:
    return tally("default", question("default", kinds, most))


def test_rows_are_told_by_state_with_the_oldest_the_first_due_and_how_many_are_late() -> None:
    put(Parcel, state_changed=ago(100), state_next_attempt=ago(30))
    put(Parcel, state_changed=ago(5), state_next_attempt=ago(50))
    put(Parcel, state="sent", state_changed=ago(7))
    packed, sent = sorted(counted(by_state(raw(Parcel), LATE))[0], key=lambda one: one.value)
    assert (packed.value, packed.count, packed.late) == ("packed", 2, 1)
    assert 100 <= packed.oldest < 200
    assert 50 <= packed.waited < 100
    assert (sent.value, sent.count, sent.late) == ("sent", 1, 0)
    assert 7 <= sent.waited < 90


def test_rows_are_told_by_the_values_of_a_column() -> None:
    for tenant, age in ((7, 100), (7, 300), (9, 5)):
        put(Errand, tenant=tenant, state_changed=ago(age))
    found = {one.value: one for one in counted(by_value(raw(Errand), "tenant"))[0]}
    assert {value: one.count for value, one in found.items()} == {7: 2, 9: 1}
    assert 300 <= found[7].oldest < 400
    assert sum(one.count for one in counted(by_value(raw(Errand), "tenant"), most=2)[0]) == 2


def test_rows_of_numbers_are_read_in_the_order_of_an_index() -> None:
    for tenant in (9, 7, 8):
        put(Errand, tenant=tenant)
    rows = raw(Errand).order_by("-tenant").values_list("tenant", flat=True)
    assert [tuple(row) for row in in_order(Errand, rows[:2])] == [(9,), (8,)]


def test_kinds_are_cut_off_in_their_own_order() -> None:
    for age in (10, 1000, 100):
        put(Parcel, state_changed=ago(age))
    oldest, newest, all_of_them = counted(
        by_state(raw(Parcel).order_by("state_changed"), LATE),
        by_state(raw(Parcel).order_by("-state_changed"), LATE),
        in_all(raw(Parcel)),
        most=2,
    ).values()
    assert [(one.count, one.late, int(one.oldest) // 100) for one in (*oldest, *newest)] == [(2, 2, 10), (2, 1, 1)]
    assert [one.count for one in all_of_them] == [2]


def test_more_kinds_than_one_statement_takes(
    monkeypatch: pytest.MonkeyPatch, django_assert_max_num_queries: Any
) -> None:
    """SQLite refuses more than 500 parts of one statement."""
    put(Parcel)
    kinds = [in_all(raw(Parcel)) for _ in range(5 * module.AT_ONCE + 1)]
    with django_assert_max_num_queries(6):
        found = counted(*kinds)
    assert [found[number][0].count for number in range(len(kinds))] == [1] * len(kinds)


def test_rows_with_the_flag_are_counted_apart_and_wait_for_nothing() -> None:
    put(Parcel, state_next_attempt=ago(300), state_crashes=3)
    put(Parcel, state_next_attempt=ago(30))
    put(Parcel, state="sent", state_crashes=3)
    crashed = Q(state_crashes__gte=3)
    found = counted(by_state(raw(Parcel), flag=crashed), in_all(raw(Parcel), crashed), in_all(raw(Parcel))[:1])
    packed, sent = sorted(found[0], key=lambda one: one.value)
    assert (packed.count, packed.flagged) == (2, 1)
    assert packed.waited is not None
    assert 30 <= packed.waited < 300
    assert (sent.count, sent.flagged, sent.waited) == (1, 1, None)
    assert [(one.count, one.flagged) for one in found[1]] == [(3, 2)]
    assert [one.count for one in found[2]] == [1]
