"""Bars over time."""

from stator.admin.charts import FLOOR, chart, sparkline
from stator.survey.flow import Point


class TestChart:
    def test_highest_bar_stands_for_the_most_and_nothing_has_no_bar(self):
        found = chart([Point("10:00", 0), Point("11:00", 50), Point("12:00", 100)])
        assert [bar.height for bar in found.bars] == [0, (FLOOR - 6) / 2, FLOOR - 6]
        assert (found.most, found.total, found.latest) == (100, 150, 100)


class TestSparkline:
    def test_nothing_known_is_a_gap(self):
        assert sparkline([1, None, 1]).path == "M0,1.0L0,1.0M118,1.0L118,1.0"
        assert sparkline([None, None]).path == ""
