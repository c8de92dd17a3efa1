"""A table over the nodes of Citus, for the migration operation ``Distribute``."""

from typing import Any

from django.core.management.base import CommandError
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models import Model

from stator.partitions.conversion import Conversion
from stator.partitions.schemes import Scheme
from stator.rows.fields import SPREAD

# How Citus manages a table; it does not if there is no row.
MANAGED = """
SELECT partmethod <> 'n' FROM pg_catalog.pg_dist_partition WHERE logicalrelid = to_regclass(%s)
"""
# The foreign keys of a table that need a reference table. Such a table makes a local table of Citus of each one that
# refers to it, and Citus distributes no local table with an identity column.
FOREIGN_KEYS = """
SELECT conname, confrelid::regclass::text FROM pg_constraint WHERE contype = 'f' AND conrelid = to_regclass(%s)
  AND NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = conrelid AND attnum = ANY(conkey) AND attname = %s)
"""
DISTRIBUTE = "SELECT create_distributed_table(%s, %s, "
# What Citus leaves behind on the coordinator.
TRUNCATE = "SELECT truncate_local_data_after_distributing_table(%s)"


class NodesConversion(Conversion):
    """The distribution of one model's table, beside the table ``colocate_with`` or else those of the same kind.

    The table's primary key gets the column while programs go on writing. They wait while Citus copies the rows.
    """

    def __init__(
        self, editor: BaseDatabaseSchemaEditor, model: type[Model], scheme: Scheme, colocate_with: str | None
    ) -> None:
        super().__init__(editor, model, scheme)
        self.colocate_with = colocate_with

    def forwards(self) -> None:
        """Distribute the table; what an interrupted conversion left is replaced."""
        for (is_distributed,) in self._asked(MANAGED, [self.quoted]):
            if is_distributed:
                return
            raise CommandError(
                f"{self.scheme.operation}: {self.name} is in a distributed schema, or a reference table, or refers to "
                "one. Put it into another schema, or give such fields db_constraint=False until it is distributed, "
                "then migrate again."
            )
        # Citus has no triggers.
        self._refuse_dependents(keeps_triggers=False)
        for name, target in self._asked(FOREIGN_KEYS, [self.quoted, self.scheme.column]):
            raise CommandError(
                f"{self.scheme.operation}: the foreign key {name} of {self.name} refers to {target}. Give its field "
                "db_constraint=False until the table is distributed, then migrate again. It may refer to reference "
                "tables."
            )
        keys = self._keys()
        with self._undone_on_error():
            replaced = self._replace_unique(keys)
            self._alone(lambda cursor: self._distribute(cursor, replaced))
        self._asked(TRUNCATE, [self.quoted])

    def backwards(self) -> None:
        """Copy all rows into one ordinary table, in one transaction."""
        if any(is_distributed for (is_distributed,) in self._asked(MANAGED, [self.quoted])):
            self._alone(self._copy)

    def _distribute(self, cursor: Any, replaced: list[tuple[str, str | None, str]]) -> None:
        for name, kind, new in replaced:
            self._exchange(cursor, name, kind, new)
        place = "colocate_with => %s)" if self.colocate_with else "shard_count => %s)"
        cursor.execute(DISTRIBUTE + place, [self.quoted, self.scheme.column, self.colocate_with or len(SPREAD)])
