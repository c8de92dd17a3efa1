"""Migration operations for projects: renamed and removed states, renamed models, storage parameters, partitions."""

import re
from collections.abc import Iterator, Mapping

from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models import Model

from stator.capabilities import Capabilities
from stator.extensions.migrating.operations import RemapState as RemapState
from stator.extensions.migrating.operations import RenameRecords as RenameRecords
from stator.extensions.migrating.operations import RenameState as RenameState
from stator.extensions.partitions.operations import Distribute as Distribute
from stator.extensions.partitions.operations import PartitionByTime as PartitionByTime
from stator.table_operations import LEAVES, TableOperation

# Names of storage parameters, including parameters of a TOAST table; PostgreSQL takes them without quotes.
PARAMETER = re.compile(r"[a-z_]+(\.[a-z_]+)?")


class StorageParameters(TableOperation):
    """Set storage parameters of a model's table on PostgreSQL, such as the fill factor and thresholds of autovacuum.

    ``parameters`` are for the table, ``key`` for the index of its primary key. Names and values are as in
    ``ALTER TABLE ... SET``: each value is a number or a boolean, and None resets it to the server's default. PostgreSQL
    refuses unknown names. Reversing the migration resets all of them. On other databases it does nothing.
    """

    reduces_to_sql = True

    def __init__(
        self, model_name: str, parameters: Mapping[str, float | None], key: Mapping[str, float | None] | None = None
    ) -> None:
        super().__init__(model_name)
        self.parameters = dict(parameters)
        self.key = dict(key or {})
        if not (self.parameters or self.key):
            raise ValueError(
                f"StorageParameters({model_name!r}): give at least one parameter, such as {{'fillfactor': 50}}"
            )
        for name, value in (*self.parameters.items(), *self.key.items()):
            if not PARAMETER.fullmatch(name) or not (value is None or isinstance(value, int | float)):
                raise ValueError(
                    f"StorageParameters({model_name!r}): {name!r}: {value!r} is not a name with a number, True or False"
                )

    def works_with(self, capabilities: Capabilities) -> bool:
        return capabilities.has_storage_parameters

    def forwards(self, editor: BaseDatabaseSchemaEditor, model: type[Model]) -> None:
        """Set and reset the parameters."""
        _alter(editor, model, self.parameters, self.key)

    def backwards(self, editor: BaseDatabaseSchemaEditor, model: type[Model]) -> None:
        """Reset all parameters."""
        _alter(editor, model, dict.fromkeys(self.parameters), dict.fromkeys(self.key))

    def describe(self) -> str:
        """Return a description for people."""
        names = dict.fromkeys([*self.parameters, *self.key])
        return f"Set {', '.join(names)} of the table of {self.model_name}"

    @property
    def migration_name_fragment(self) -> str:
        """A part of the migration's name."""
        return f"{self.model_name.lower()}_storage"


def _alter(
    editor: BaseDatabaseSchemaEditor,
    model: type[Model],
    parameters: Mapping[str, float | None],
    key: Mapping[str, float | None],
) -> None:
    table = editor.quote_value(editor.quote_name(model._meta.db_table))
    # The catalog finds the partitions, if the table has some, and the index, because its name is not known.
    leaves = LEAVES % {"table": table}
    index = f"SELECT indexrelid::regclass FROM pg_index WHERE indisprimary AND indrelid IN ({leaves})"  # noqa: S608 - quoted
    for kind, sql, given in (("TABLE", leaves, parameters), ("INDEX", index, key)):
        for body in _set_and_reset(given):
            alter = f"EXECUTE format('ALTER {kind} %s {body}', part)"
            loop = f"DECLARE part regclass; BEGIN FOR part IN {sql} LOOP {alter}; END LOOP; END"
            editor.execute(f"DO $stator$ {loop} $stator$", params=None)


def _set_and_reset(parameters: Mapping[str, float | None]) -> Iterator[str]:
    """Yield the clauses for the ALTER statement of a table or an index."""
    if values := [f"{name} = {value}" for name, value in parameters.items() if value is not None]:
        yield f"SET ({', '.join(values)})"
    if names := [name for name, value in parameters.items() if value is None]:
        yield f"RESET ({', '.join(names)})"
