"""Moments that a database may keep and nobody can read again are refused wherever one is given."""

from datetime import UTC, datetime, timedelta, timezone

from tasks.datetimes import moment_problem

WEST, EAST = timezone(timedelta(hours=-5)), timezone(timedelta(hours=14))


def test_moment_that_is_too_far_away_has_a_problem_and_others_have_none():
    for moment in (
        datetime.max.replace(tzinfo=WEST), datetime.min.replace(tzinfo=EAST), datetime(9000, 1, 1, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=EAST),
    ):  # fmt: skip
        assert "between the years 1970 and 9000" in moment_problem(moment)
    # The last is of a project without time zones.
    for moment in (None, "soon", datetime(1970, 1, 1, tzinfo=UTC), datetime(8999, 12, 31)):  # noqa: DTZ001
        assert moment_problem(moment) == ""
