"""Moments that a database may keep and nobody can read again are refused wherever one is given."""

from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from tasks.datetimes import moment_problem

WEST, EAST = timezone(timedelta(hours=-5)), timezone(timedelta(hours=14))


@pytest.mark.parametrize(
    "moment",
    [
        datetime.max.replace(tzinfo=WEST), datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=EAST),
        datetime(9000, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=EAST),
    ],
)  # fmt: skip
def test_moment_that_is_too_far_away_has_a_problem(moment):
    assert "between the years 1970 and 9000" in moment_problem(moment)


@pytest.mark.parametrize("moment", [None, "soon", date.max, datetime(1970, 1, 1, tzinfo=UTC), datetime(8999, 12, 31)])  # noqa: DTZ001 - of a project without time zones
def test_others_have_none(moment):
    assert moment_problem(moment) == ""
