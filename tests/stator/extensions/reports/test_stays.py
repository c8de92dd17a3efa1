"""How long objects had been in the states that they left lately."""

from typing import Any

import pytest

from stator.extensions.reports import stays as module
from stator.extensions.reports.stays import stays
from stator.models import History
from stator.survey.flow import Stays
from tests.stator.making import ago
from tests.testapp.operators import Parcel
from tests.testapp.power import Order, OrderGraph

pytestmark = pytest.mark.django_db

LABEL = "testapp.order"


def keep(*seconds: float | None, source: str = "working", **columns: Any) -> None:
    """Rows of history, the last of them the newest."""
    given = {"model_label": LABEL, "object_pk": "1", "version": 1, "kind": "move", "source": source, "to": "shipped"}
    rows = [History(**given | {"at": ago(60 - number)} | columns, stay=stay) for number, stay in enumerate(seconds)]
    History.objects.bulk_create(rows)


def of_order() -> dict[str, Stays]:
    return {one.state: one for one in stays("default", [Order, Parcel]).get(LABEL, [])}


class TestStays:
    @pytest.mark.parametrize(
        ("seconds", "p50", "p95"),
        [
            ([7], 7, 7), ([3, 1], 1, 3), (range(20, 0, -1), 10, 19), (range(1, 101), 50, 95), ([0], 0, 0),
        ],
    )  # fmt: skip
    def test_percentiles_are_the_smallest_that_so_many_do_not_exceed(self, seconds: Any, p50: int, p95: int) -> None:
        keep(*seconds)
        found = of_order()["working"]
        assert (found.moves, found.p50, found.p95) == (len(seconds), p50, p95)

    def test_burn_is_the_part_that_took_longer_than_expected(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(OrderGraph.working, "expect_within", 30)
        keep(29, 30, 30.5, 3000)
        keep(40, source="waiting")
        found = of_order()
        assert (found["working"].expected, found["working"].burn) == (30, 0.5)
        assert (found["waiting"].expected, found["waiting"].burn) == (None, None)
        told = [Stays("new", 1, 1, 1, expected=30, burn=burn).burned for burn in (0, 0.001, 0.125, 0.996, 1)]
        assert told == [f"{part} (more than 30 s)" for part in ("none", "<1 %", "12 %", ">99 %", "all")]

    def test_start_is_the_time_until_the_first_attempt_of_objects_that_were_ready_at_once(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(OrderGraph.working, "attempt_immediately", True)
        keep(9, attempts=2, duration=1)
        keep(9)
        assert (of_order()["working"].start50, of_order()["working"].start95) == (None, None)
        keep(*range(1, 21), attempts=1, duration=1)
        assert (of_order()["working"].start50, of_order()["working"].start95) == (9, 18)
        monkeypatch.setattr(OrderGraph.working, "attempt_immediately", False)
        assert of_order()["working"].start50 is None

    def test_errors_manual_actions_and_rows_from_before_are_left_out(self) -> None:
        keep(None, kind="error", to="")
        keep(None, kind="hand", to="")
        keep(None)
        assert of_order() == {}
        keep(5)
        assert of_order()["working"].moves == 1

    def test_moves_by_hand_count_where_all_moves_are_recorded_and_not_alone(self) -> None:
        keep(5, kind="hand")
        keep(5, kind="hand", model_label="testapp.parcel", source="packed")
        found = stays("default", [Order, Parcel])
        assert [one.moves for one in found[LABEL]] == [1]
        assert "testapp.parcel" not in found

    def test_the_newest_of_the_last_day_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        keep(1000, at=ago(86400 + 60))
        keep(900, at=ago(86400 - 60))
        assert (of_order()["working"].moves, of_order()["working"].p50) == (1, 900)
        keep(*range(1, 11))
        keep(5, 5, model_label="tasks.task", at=ago(1))
        monkeypatch.setattr(module, "LATEST", 6)
        found = of_order()["working"]
        assert (found.moves, found.p50, found.p95) == (4, 8, 10)
