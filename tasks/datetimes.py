"""Moments that every database can store, converted between columns and real time.

With ``USE_TZ=False``, column values have no time zone.
"""

from datetime import UTC, datetime, tzinfo

from django.conf import settings
from django.db import connections
from django.utils import timezone

from stator.capabilities import capabilities_of

# Some databases store moments that Python cannot read, and some zones have no times near the ends of its calendar.
FIRST, LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)


def moment_problem(moment: object) -> str:
    """Return one line on what is wrong with a moment; empty if it is valid or no datetime."""
    try:
        kept = not isinstance(moment, datetime) or FIRST <= moment.astimezone(UTC) < LAST
    except (OverflowError, ValueError):
        kept = False
    return "" if kept else "must be a moment between the years 1970 and 9000"


def aware(moment: datetime, using: str) -> datetime:
    """Return the moment that a column means which the database's clock has filled."""
    if not timezone.is_naive(moment):
        return moment
    # In UTC: Python compares two times in one zone by their clock faces, even when the clocks change.
    return timezone.make_aware(moment, _zone_of_clock(using)).astimezone(UTC)


def stored(moment: datetime, using: str) -> datetime:
    """Return the column value for a moment; a moment without a zone is in the site's zone."""
    # PostgreSQL accepts moments with a zone even then, and so tells apart the two passes of an hour that repeats.
    if settings.USE_TZ or capabilities_of(connections[using]).accepts_aware_moments:
        return moment
    meant = timezone.make_aware(moment) if timezone.is_naive(moment) else moment
    return timezone.make_naive(meant, _zone_of_clock(using))


def moment_of_text(text: str, using: str) -> datetime:
    """Return the value that a column would have, from its text in a database's JSON."""
    moment = datetime.fromisoformat(text)
    naive = timezone.is_naive(moment)
    if settings.USE_TZ:
        return moment.replace(tzinfo=connections[using].timezone) if naive else moment.astimezone(UTC)
    return moment if naive else timezone.make_naive(moment, timezone.get_default_timezone())


def _zone_of_clock(using: str) -> tzinfo:
    # PostgreSQL uses the zone that Django sets for the session; SQLite always uses UTC.
    return UTC if capabilities_of(connections[using]).clock_in_utc else timezone.get_default_timezone()
