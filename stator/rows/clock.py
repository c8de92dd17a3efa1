"""The database's time, in the time zone that Django uses for times stored there."""

from datetime import UTC, datetime, tzinfo
from typing import Any

from django.conf import settings
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import functions
from django.db.models.sql.compiler import SQLCompiler
from django.utils import timezone
from django.utils.deconstruct import deconstructible


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


# Migrations go on naming Django's class.
@deconstructible(path="django.db.models.functions.datetime.Now")
class Now(functions.Now):  # noqa: TID251
    """Django's ``Now()``, which on SQLite is in UTC even where all other times are in another zone."""

    def as_sqlite(self, compiler: SQLCompiler, connection: Any, **context: Any) -> tuple[str, tuple[Any, ...]]:
        """Compile to the time in the zone of the columns."""
        if not (ahead := seconds_ahead(connection)):
            return super().as_sqlite(compiler, connection, **context)
        template = f"STRFTIME('%%%%Y-%%%%m-%%%%d %%%%H:%%%%M:%%%%f', 'NOW', '{ahead:+} seconds')"
        return self.as_sql(compiler, connection, template=template, **context)
