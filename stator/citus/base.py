"""PostgreSQL with the extension Citus, for tables in distributed schemas."""

import copy
from dataclasses import replace
from typing import Any

from django.db.backends.postgresql import base, operations, schema
from django.db.models import Field, Model

from stator.capabilities import POSTGRESQL
from stator.citus.creation import DatabaseCreation
from stator.citus.waiting import watched

CITUS = replace(
    POSTGRESQL,
    name="citus",
    statements="stator.citus.statements",
    writes_in_with=False,
    has_plpgsql=False,
    has_nodes=True,
)


class DatabaseSchemaEditor(schema.DatabaseSchemaEditor):
    """Adds a column without constraints, as Citus wants it, and then each constraint by itself."""

    # Foreign keys are added after all columns.
    sql_create_column_inline_fk = None  # type: ignore[assignment]

    def add_field(self, model: type[Model], field: Field) -> None:
        """Add a column, then its CHECK, its UNIQUE and its indexes."""
        super().add_field(model, _plain(field))
        editor: Any = self
        if check := field.db_parameters(connection=self.connection)["check"]:
            name = editor._create_index_name(model._meta.db_table, [field.column], suffix="_check")
            self.execute(editor._create_check_sql(model, name, check))
        if field.unique and not field.primary_key:
            self.execute(editor._create_unique_sql(model, [field]))
        self.deferred_sql.extend(editor._field_indexes_sql(model, field))


def _plain(field: Field) -> Field:
    """Return a copy of a field whose column has no CHECK, no UNIQUE and no index."""
    plain = copy.copy(field)
    vars(plain).update(_unique=False, db_index=False, db_check=lambda connection: None)
    return plain


class DatabaseOperations(operations.DatabaseOperations):
    """The operations of PostgreSQL with the compilers for Citus."""

    compiler_module = "stator.citus.compiler"


class DatabaseWrapper(base.DatabaseWrapper):
    """A connection to a server with Citus."""

    stator_capabilities = CITUS
    SchemaEditorClass = DatabaseSchemaEditor
    ops_class = DatabaseOperations
    creation_class = DatabaseCreation

    def _configure_connection(self, connection: Any) -> bool:
        """Let each statement use one connection to each node.

        Otherwise a statement that takes longer may open further ones, and the transaction in which it wrote then cannot
        join what was written over several connections. Django calls this for connections of a pool, too.
        """
        django: Any = super()
        django._configure_connection(connection)
        connection.execute("SET citus.max_adaptive_executor_pool_size = 1")
        watched(connection)
        return True
