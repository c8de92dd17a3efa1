"""Indexes that only some databases support."""

from typing import Any

from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models import Index, Model

from stator.capabilities import capabilities_of


class MetadataIndex(Index):
    """A GIN index on PostgreSQL. On other databases it does nothing, so that one migration serves all of them."""

    suffix = "gin"

    def create_sql(
        self, model: type[Model], schema_editor: BaseDatabaseSchemaEditor, using: str = "", **kwargs: object
    ) -> Any:
        """Return the statement that creates the index; on other databases, one that does nothing."""
        if not capabilities_of(schema_editor.connection).has_gin:
            return NOTHING
        # Django's GinIndex requires django.contrib.postgres in INSTALLED_APPS.
        return super().create_sql(model, schema_editor, using=" USING gin", **kwargs)

    def remove_sql(self, model: type[Model], schema_editor: BaseDatabaseSchemaEditor, **kwargs: object) -> Any:
        """Return the statement that drops the index; on other databases, one that does nothing."""
        if not capabilities_of(schema_editor.connection).has_gin:
            return NOTHING
        return super().remove_sql(model, schema_editor, **kwargs)


# Django executes the returned statement, and some databases refuse an empty one.
NOTHING = "SELECT 1"
