"""How many rows of several kinds there are, in one statement."""

from typing import Any

import pytest

from stator.db import bounded_counts as module
from stator.db.bounded_counts import Tally, by_value, in_all, question, tally
from tests.stator.making import ago, put, raw
from tests.testapp.explained import Errand
from tests.testapp.operators import Parcel

pytestmark = pytest.mark.django_db


def counted(*kinds: Any, most: int = 100) -> dict[int, list[Tally]]:
    return tally("default", question("default", kinds, most))[0]


def test_rows_are_told_by_the_values_of_a_column() -> None:
    for tenant, age in ((7, 100), (7, 300), (9, 5)):
        put(Errand, tenant=tenant, state_changed=ago(age))
    found = {one.value: one for one in counted(by_value(raw(Errand), "tenant"))[0]}
    assert {value: one.count for value, one in found.items()} == {7: 2, 9: 1}
    assert 300 <= found[7].oldest < 400
    assert sum(one.count for one in counted(by_value(raw(Errand), "tenant"), most=2)[0]) == 2


def test_more_kinds_than_one_statement_takes(
    monkeypatch: pytest.MonkeyPatch, django_assert_max_num_queries: Any
) -> None:
    """SQLite refuses more than 500 parts of one statement."""
    put(Parcel)
    kinds = [in_all(raw(Parcel)) for _ in range(2 * module.AT_ONCE + 1)]
    with django_assert_max_num_queries(3):
        found = counted(*kinds)
    assert [found[number][0].count for number in range(len(kinds))] == [1] * len(kinds)
