"""The bounds of partitions."""

from stator.extensions.partitions.tables import AHEAD, Partition, PartitionedTable, periods_from
from tests.stator.dividing import day

PERIODS = [
    ("2026-11-26T12:00", "month", "2026-11-01", "2026-12-01"),
    ("2026-12-31T23:59", "month", "2026-12-01", "2027-01-01"),
    ("2024-02-29", "month", "2024-02-01", "2024-03-01"),
    ("2026-11-26", "week", "2026-11-23", "2026-11-30"),
    ("2026-11-30", "week", "2026-11-30", "2026-12-07"),
    ("2026-12-31T08:00", "day", "2026-12-31", "2027-01-01"),
]


def test_periods_follow_each_other_without_a_gap():
    for moment, period, first, second in PERIODS:
        bounds = list(periods_from(day(moment), period))
        assert bounds[0] == (day(first), day(second))
        assert [upper for _, upper in bounds[:-1]] == [lower for lower, _ in bounds[1:]]
        assert len(bounds) == AHEAD[period] + 1


def table(*bounds, now="2026-11-26T12:00"):
    parts = [Partition(f"p{n}", lower and day(lower), upper and day(upper)) for n, (lower, upper) in enumerate(bounds)]
    return PartitionedTable("public", "t", "at", owned=True, now=day(now), partitions=tuple(parts))


def test_partitions_ahead_are_missing_from_the_end_of_the_newest_one():
    made = table((None, "2026-12-01"), ("2026-12-01", "2027-01-01"), (None, None))
    assert made.period == "month"
    assert [lower for lower, _ in made.missing()] == [day("2027-01-01"), day("2027-02-01")]


def test_nothing_is_missing_in_a_layout_that_somebody_else_chose_but_now_if_workers_were_stopped_for_long():
    assert table(("2020-01-01", "2021-01-01")).missing() == []
    assert table((None, None)).missing() == []
    made = table(("2026-05-01", "2026-06-01"), (None, None))
    assert made.missing()[0] == (day("2026-11-01"), day("2026-12-01"))


def test_only_partitions_that_ended_before_the_retention_are_past():
    made = table((None, None), ("2026-10-01", "2026-11-01"), (None, "2026-10-01"), ("2026-11-01", "2026-12-01"))
    assert [each.name for each in made.past(26 * 86400)] == ["p2"]
    assert [each.name for each in made.past(25 * 86400)] == ["p2", "p1"]
