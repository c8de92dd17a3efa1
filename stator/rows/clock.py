"""The database's time, in the time zone that Django uses for times stored there."""

from datetime import UTC, datetime, tzinfo
from typing import Any

from django.conf import settings
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import functions
from django.db.models.expressions import Combinable, TemporalSubtraction
from django.db.models.sql.compiler import SQLCompiler
from django.utils import timezone
from django.utils.deconstruct import deconstructible

from stator.conf import shows_utc
from stator.texts import MOMENT


def stored_zone(connection: BaseDatabaseWrapper) -> tzinfo:
    """Return the zone of a database's columns: the site's without ``USE_TZ``, else ``TIME_ZONE`` of the database."""
    if not settings.USE_TZ:
        return timezone.get_default_timezone()
    zone: tzinfo = connection.timezone or UTC
    return zone


def seconds_ahead(connection: BaseDatabaseWrapper) -> int:
    """Return by how many seconds the times in a database's columns are ahead of UTC now."""
    offset = datetime.now(stored_zone(connection)).utcoffset()
    return int(offset.total_seconds()) if offset else 0


def moment_text(moment: datetime) -> str:
    """Return a moment as people read it everywhere, with its zone: ``2026-01-31 12:00:00 +0100``."""
    return local_moment(moment).strftime(MOMENT)


def local_moment(moment: datetime) -> datetime:
    """Return a moment in the zone in which people read times: the site's current one, or UTC with the setting ``UTC``.

    It has a zone, even without ``USE_TZ``.
    """
    return timezone.localtime(_aware(moment), UTC if shows_utc() else None)


def local_now() -> datetime:
    """Return the time of this machine in that zone, to be compared with columns: without ``USE_TZ`` it has no zone."""
    now = timezone.now()
    return local_moment(now) if timezone.is_aware(now) else now


def moment_json(moment: datetime) -> str:
    """Return a moment as programs read it everywhere: ISO 8601, in UTC."""
    return _aware(moment).astimezone(UTC).isoformat()


def _aware(moment: datetime) -> datetime:
    return moment if timezone.is_aware(moment) else timezone.make_aware(moment, timezone.get_default_timezone())


# Migrations go on naming Django's class.
@deconstructible(path="django.db.models.functions.datetime.Now")
class Now(functions.Now):  # noqa: TID251
    """Django's ``Now()``, which on SQLite is in UTC even where all other times are in another zone."""

    def as_sqlite(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any
    ) -> tuple[str, tuple[str | int, ...]]:
        """Compile to the time in the zone of the columns."""
        if not (ahead := seconds_ahead(connection)):
            return super().as_sqlite(compiler, connection, **context)
        template = f"STRFTIME('%%%%Y-%%%%m-%%%%d %%%%H:%%%%M:%%%%f', 'NOW', '{ahead:+} seconds')"
        return self.as_sql(compiler, connection, template=template, **context)


class Elapsed(TemporalSubtraction):
    """The time from one moment to another, by default to now by the database's clock.

    Rows may be written by any program. On SQLite a time is text, and Django's own difference fails the whole statement
    at a text without a time of day ("2100-01-01") or with a "T" in it. SQLite's function reads both, to milliseconds.
    """

    def __init__(self, since: Combinable, until: Combinable | None = None) -> None:
        super().__init__(until or Now(), since)

    def as_sqlite(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: object
    ) -> tuple[str, tuple[str | int, ...]]:
        """Compile to a number of microseconds, as Django's difference is."""
        sides: list[Any] = [self.lhs, self.rhs]
        (until, until_params), (since, since_params) = map(compiler.compile, sides)
        days = f"(JULIANDAY({until}) - JULIANDAY({since}))"
        return f"CAST(ROUND({days} * 86400000) AS INTEGER) * 1000", (*until_params, *since_params)


class Seconds(models.Func):
    """The seconds of a difference between two times, as a number."""

    output_field = models.FloatField()
    # Where the database has no intervals, a difference is a number of microseconds.
    template = "(%(expressions)s) / 1000000.0"

    def as_postgresql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any
    ) -> tuple[str, tuple[object, ...]]:
        """Compile to the seconds of an interval."""
        return self.as_sql(compiler, connection, template="EXTRACT(EPOCH FROM %(expressions)s)", **context)
