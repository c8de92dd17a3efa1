"""Indexes that only some databases have."""

from typing import Any

from django.db.models import Index


class MetadataIndex(Index):
    """A GIN index on PostgreSQL, and nothing anywhere else, so that one migration serves every database."""

    suffix = "gin"

    def create_sql(self, model: Any, schema_editor: Any, using: str = "", **kwargs: Any) -> Any:
        """The statement; where there is no such index, one that does nothing."""
        if schema_editor.connection.vendor != "postgresql":
            return NOTHING
        # Not Django's GinIndex, which wants django.contrib.postgres among the installed apps.
        return super().create_sql(model, schema_editor, using=" USING gin", **kwargs)

    def remove_sql(self, model: Any, schema_editor: Any, **kwargs: Any) -> Any:
        """As :meth:`create_sql`."""
        if schema_editor.connection.vendor != "postgresql":
            return NOTHING
        return super().remove_sql(model, schema_editor, **kwargs)


# Django executes whatever an index answers, and not every database takes an empty statement.
NOTHING = "SELECT 1"
