"""A table over the nodes of Citus, for the migration operation ``Distribute``."""

from typing import Any

from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.backends.utils import CursorWrapper
from django.db.models import Model

from stator.extensions.partitions.conversion import Conversion
from stator.extensions.partitions.schemes import ByValue, Scheme
from stator.extensions.slices.in_shards import make_function
from stator.rows.meta import ModelOptions, model_named
from stator.rows.spread import SPREAD

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
# The foreign keys that refer to a table.
REFERRING = """
SELECT conname, n.nspname, c.relname FROM pg_constraint r
JOIN pg_class c ON c.oid = conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE contype = 'f' AND confrelid = to_regclass(%s)
"""
REFERENCE = "SELECT create_reference_table(%s)"
DISTRIBUTE = "SELECT create_distributed_table(%s, %s, "
# What Citus leaves behind on the coordinator.
TRUNCATE = "SELECT truncate_local_data_after_distributing_table(%s)"


class Beside(ByValue):
    """The table is beside another one, and unique constraints that hold for rows of that one get the column."""

    widened = ("p", "u", None)


class NodesConversion(Conversion):
    """The distribution of one model's table, beside the table ``colocate_with`` or else those of the same kind.

    The table's primary key gets the column while programs go on writing. They wait while Citus copies the rows.
    """

    def __init__(
        self,
        editor: BaseDatabaseSchemaEditor,
        model: type[Model],
        scheme: Scheme,
        colocate_with: str | None,
        options: ModelOptions | None = None,
    ) -> None:
        super().__init__(editor, model, scheme)
        self.colocate_with = colocate_with
        beside, everywhere = (options.beside, options.everywhere) if options else ((), ())
        near = Beside(scheme.column, 2)
        self.beside = [NodesConversion(editor, each, near, self.quoted) for each in map(model_named, beside)]
        self.everywhere = [NodesConversion(editor, each, scheme, None) for each in map(model_named, everywhere)]

    def forwards(self) -> None:
        """Distribute the table and those beside it; what an interrupted conversion left is replaced."""
        parts = [each for each in (self, *self.beside) if not each._is_distributed()]
        for target in self.everywhere:
            # With a foreign key to a reference table, a table on the coordinator would be managed by Citus.
            for name, *place in self._asked(REFERRING, [target.quoted]):
                self._run("ALTER TABLE {place} DROP CONSTRAINT {name}", place=tuple(place), name=name)
        for each in parts:
            each._forwards()
        for target in self.everywhere:
            if not self._asked(MANAGED, [target.quoted]):
                self._asked(REFERENCE, [target.quoted])
        make_function(self.connection)

    def _is_distributed(self) -> bool:
        """Return whether the table is distributed already; raise ``CommandError`` if it cannot be."""
        if self.kind == "p":
            raise self.scheme.refusal(f"{self.name} has partitions", "Reverse the migration that divided it")
        for (is_distributed,) in self._asked(MANAGED, [self.quoted]):
            if not is_distributed:
                raise self.scheme.refusal(
                    f"{self.name} is in a distributed schema, or a reference table, or refers to one",
                    "Put it into another schema, or give such fields db_constraint=False until it is distributed",
                )
            return True
        return False

    def _forwards(self) -> None:
        # Citus has no triggers.
        self._refuse_dependents(keeps_triggers=False)
        for name, target in self._asked(FOREIGN_KEYS, [self.quoted, self.scheme.column]):
            raise self.scheme.refusal(
                f"{self.name} may refer to reference tables only, and its foreign key {name} refers to {target}",
                "Give its field db_constraint=False until the table is distributed",
            )
        keys = self._keys()
        with self._undone_on_error():
            replaced = self._replace_unique(keys)
            self._alone(lambda cursor: self._distribute(cursor, replaced))
        self._asked(TRUNCATE, [self.quoted])

    def backwards(self) -> None:
        """Copy all rows into ordinary tables, each in one transaction."""
        for each in (*self.beside, self):
            if any(is_distributed for (is_distributed,) in each._asked(MANAGED, [each.quoted])):
                each._alone(each._copy)
        for target in self.everywhere:
            if self._asked(MANAGED, [target.quoted]):
                target._alone(target._copy)
                target._restore_references()

    def _restore_references(self) -> None:
        """Give the foreign keys that refer to the table to the database again."""
        editor: Any = self.editor
        for relation in self.model._meta.related_objects:
            if getattr(relation.field, "db_constraint", False):
                suffix = "_fk_%(to_table)s_%(to_column)s"
                editor.execute(editor._create_fk_sql(relation.related_model, relation.field, suffix))

    def _distribute(self, cursor: CursorWrapper, replaced: list[tuple[str, str | None, str]]) -> None:
        for name, kind, new in replaced:
            self._exchange(cursor, name, kind, new)
        place = "colocate_with => %s)" if self.colocate_with else "shard_count => %s)"
        cursor.execute(DISTRIBUTE + place, [self.quoted, self.scheme.column, self.colocate_with or len(SPREAD)])
