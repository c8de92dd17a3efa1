"""Conversions between times with a zone and the values of columns, which have no zone if ``USE_TZ=False``."""

from datetime import UTC, datetime

from django.conf import settings
from django.db import connections
from django.utils import timezone

from stator.capabilities import capabilities_of

# Some databases store times that Python cannot read, and near the ends of Python's calendar zones overflow.
FIRST, LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)


def moment_problem(moment: object) -> str:
    """Return what is wrong with a time, as the end of a sentence; empty if it is valid or not a datetime."""
    try:
        valid = not isinstance(moment, datetime) or FIRST <= moment.astimezone(UTC) < LAST
    except (OverflowError, ValueError):
        valid = False
    return "" if valid else "must be a moment between the years 1970 and 9000"


def aware(moment: datetime) -> datetime:
    """Return the time of a column with its zone."""
    if not timezone.is_naive(moment):
        return moment
    # The result is in UTC, because Python compares two times in the same zone without regard to clock changes.
    return timezone.make_aware(moment).astimezone(UTC)


def stored(moment: datetime, using: str) -> datetime:
    """Return the column value for a time; a time without a zone is in the site's zone."""
    # PostgreSQL accepts times with a zone even if USE_TZ is off. They are unambiguous in an hour that repeats.
    if settings.USE_TZ or capabilities_of(connections[using]).accepts_aware_moments:
        return moment
    return moment if timezone.is_naive(moment) else timezone.make_naive(moment)


def moment_of_text(text: str, using: str) -> datetime:
    """Return the value of a datetime column from its text in JSON that the database made."""
    moment = datetime.fromisoformat(text)
    naive = timezone.is_naive(moment)
    if settings.USE_TZ:
        return moment.replace(tzinfo=connections[using].timezone) if naive else moment.astimezone(UTC)
    return moment if naive else timezone.make_naive(moment, timezone.get_default_timezone())
