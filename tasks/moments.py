"""Moments that every database keeps and every zone has; as columns have them, and in time.

On a site with ``USE_TZ=False`` the values of columns have no zone.
"""

from datetime import UTC, datetime, tzinfo
from typing import Any

from django.conf import settings
from django.db import connections
from django.utils import timezone

# Some databases keep moments that Python cannot read again, and near the ends of its calendar some zones have none.
FIRST, LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)


def moment_problem(moment: Any) -> str:
    """What is wrong with a moment, in one line; nothing of what is none."""
    try:
        kept = not isinstance(moment, datetime) or FIRST <= moment.astimezone(UTC) < LAST
    except (OverflowError, ValueError):
        kept = False
    return "" if kept else "must be a moment between the years 1970 and 9000"


def aware(moment: datetime, using: str) -> datetime:
    """The moment that a column means which the database's clock has filled."""
    if not timezone.is_naive(moment):
        return moment
    # In UTC, for within one zone Python compares what the clock shows.
    return timezone.make_aware(moment, _zone_of_clock(using)).astimezone(UTC)


def stored(moment: datetime, using: str) -> datetime:
    """What a column is to have for a moment; one without a zone is meant in that of the site."""
    # PostgreSQL takes moments with a zone in any case, and so knows the two of the hour that clocks show twice apart.
    if settings.USE_TZ or connections[using].vendor == "postgresql":
        return moment
    meant = timezone.make_aware(moment) if timezone.is_naive(moment) else moment
    return timezone.make_naive(meant, _zone_of_clock(using))


def moment_of_text(text: str, using: str) -> datetime:
    """The value that a column would have, from its text in JSON that a database has made."""
    moment = datetime.fromisoformat(text)
    naive = timezone.is_naive(moment)
    if settings.USE_TZ:
        return moment.replace(tzinfo=connections[using].timezone) if naive else moment.astimezone(UTC)
    return moment if naive else timezone.make_naive(moment, timezone.get_default_timezone())


def _zone_of_clock(using: str) -> tzinfo:
    # PostgreSQL's clock goes by the zone that Django has told the session, that of SQLite shows UTC in any case.
    return UTC if connections[using].vendor == "sqlite" else timezone.get_default_timezone()
