"""Bars over time."""

from stator.overview.charts import FLOOR, WIDTH, Point, chart, sparkline


class TestChart:
    def test_highest_bar_stands_for_the_most_and_nothing_has_no_bar(self):
        found = chart([Point("10:00", 0), Point("11:00", 50), Point("12:00", 100)])
        assert [bar.height for bar in found.bars] == [0, (FLOOR - 6) / 2, FLOOR - 6]
        assert (found.most, found.total, found.latest) == (100, 150, 100)

    def test_what_was_bad_is_a_part_of_its_bar_at_the_floor(self):
        [bar] = chart([Point("10:00", 100, bad=25)]).bars
        assert bar.bad == (FLOOR - 6) / 4
        found = chart([Point("10:00", 0), Point("11:00", 100, bad=25), Point("12:00", 10)])
        assert found.path == "M106.7 70v-64h104.7v64zM213.3 70v-6.4h104.7v6.4z"
        assert found.bad_path == "M106.7 70v-16h104.7v16z"

    def test_each_period_says_what_it_stands_for(self):
        found = chart([Point("10:00", 0), Point("11:00", 12345, bad=25)])
        assert found.columns == [("M0 70v-70h158v70z", "10:00: 0"), ("M160 70v-70h158v70z", "11:00: 12,345, 25 failed")]

    def test_bars_fill_the_width(self):
        bars = chart([Point(str(number), 1) for number in range(24)]).bars
        assert bars[0].x == 0
        assert WIDTH - 5 < bars[-1].x + bars[-1].width <= WIDTH

    def test_no_points_make_an_empty_chart(self):
        assert chart([]).bars == ()
        assert chart([]).last is None


class TestSparkline:
    def test_line_reaches_from_the_floor_to_the_highest_value(self):
        found = sparkline([0, 5.0, 10.0])
        assert (found.path, found.most) == ("M0,23.0L0,23.0 59,12.0 118,1.0", 10)
        assert found.area == "M0,24L0,23.0 59,12.0 118,1.0V24z"

    def test_nothing_known_is_a_gap(self):
        assert sparkline([1, None, 1]).path == "M0,1.0L0,1.0M118,1.0L118,1.0"
        assert sparkline([None, None]).path == ""
