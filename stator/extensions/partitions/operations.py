"""The migration operations that divide tables; migrations name them in ``stator.migration_operations``."""

from django.apps import apps
from django.core.management.base import CommandError
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import ProjectState
from django.db.models import Model

from stator.capabilities import Capabilities, capabilities_of
from stator.extensions.partitions.conversion import Conversion
from stator.extensions.partitions.nodes import NodesConversion
from stator.extensions.partitions.schemes import ByHash, ByTime, ByValue, Scheme
from stator.extensions.partitions.tables import AHEAD, partition_column
from stator.extensions.slices.nodes import is_distributed
from stator.rows.meta import model_named, options_of
from stator.rows.spread import SPREAD, SpreadField, wrong_spread
from stator.table_operations import TableOperation


class Divide(TableOperation):
    """The base of operations that give a table partitions."""

    def works_with(self, capabilities: Capabilities) -> bool:
        return capabilities.has_partitions

    def forwards(self, editor: BaseDatabaseSchemaEditor, model: type[Model]) -> None:
        """Convert the table into one with partitions."""
        self._conversion(editor, model).forwards()

    def backwards(self, editor: BaseDatabaseSchemaEditor, model: type[Model]) -> None:
        """Copy the rows of all partitions into one table."""
        self._conversion(editor, model).backwards()

    def _scheme(self, model: type[Model]) -> Scheme:
        """Return how the model's table is divided; raise ``CommandError`` if it cannot be."""
        raise NotImplementedError

    def _conversion(self, editor: BaseDatabaseSchemaEditor, model: type[Model]) -> Conversion:
        scheme = self._scheme(model)
        if editor.atomic_migration:
            raise CommandError(
                f"{self.describe()}: programs must be able to write meanwhile, so give the migration atomic = False."
            )
        return self._converted(editor, model, scheme)

    def _converted(self, editor: BaseDatabaseSchemaEditor, model: type[Model], scheme: Scheme) -> Conversion:
        return Conversion(editor, model, scheme)


class PartitionByTime(Divide):
    """Divide a table of the framework by time, on PostgreSQL: history, statistics, or the runs of tasks.

    ``label`` is ``"stator.History"``, ``"stator.Stats"`` or ``"tasks.Run"``, ``period`` is ``"day"``, ``"week"`` or
    ``"month"``, in UTC. Put it into a migration of one of your apps that has ``atomic = False`` and depends on the
    latest migration of the label's app. Workers then make partitions ahead, and drop a partition when all of its rows
    are past their retention; they no longer delete its rows one by one.

    No row is moved: the table becomes the first partition, while programs go on writing. Reversing the migration copies
    all rows into one table, and programs wait until it is done. On other databases it does nothing.
    """

    # For squashed migrations, as for those that people write.
    __module__ = "stator.migration_operations"

    def __init__(self, label: str, period: str) -> None:
        if label.count(".") != 1:
            raise ValueError(f"PartitionByTime({label!r}, {period!r}): {label!r} is not a label such as stator.History")
        if period not in AHEAD:
            raise ValueError(
                f"PartitionByTime({label!r}, {period!r}): the period must be one of {', '.join(AHEAD)}, got {period!r}"
            )
        super().__init__(label)
        self.label = label
        self.period = period

    def describe(self) -> str:
        """Return a description for people."""
        return f"Divide the table of {self.label} by time, a partition for each {self.period}"

    @property
    def migration_name_fragment(self) -> str:
        """A part of the migration's name."""
        return f"partitions_of_{self.label.lower().replace('.', '_')}"

    def model_of(self, app_label: str, state: ProjectState) -> type[Model]:
        # The table is as the installed code knows it: a migration of another app has no state of it.
        return model_named(self.label)

    def _scheme(self, model: type[Model]) -> Scheme:
        if not (column := partition_column(model)):
            raise CommandError(f"{self}: the table of {self.label} cannot be divided by time.")
        return ByTime(column, self.period)

    def _converted(self, editor: BaseDatabaseSchemaEditor, model: type[Model], scheme: Scheme) -> Conversion:
        if is_distributed(model, editor.connection):
            raise CommandError(
                f"{self.describe()}: Citus has distributed the table over its nodes, and this operation divides only "
                "a table on one node."
            )
        return super()._converted(editor, model, scheme)


class Distribute(Divide):
    """Divide a model's table over partitions by the values of a column, on PostgreSQL.

    ``by`` names the column of ``StatorMeta.spread``. If Stator has added it, its values are from 0 to 31, and partition
    ``k`` has the rows whose value, divided by ``partitions``, leaves ``k``. Put the operation into a migration that has
    ``atomic = False``, after the field was added and before programs write other values than 0 into it. No row is moved
    then: the table becomes the first partition, while programs go on writing. A model of another app, such as
    ``tasks.Task``, is named by its label.

    A field of the project, such as a tenant, is divided by a hash of its values. Then all rows are copied, and programs
    wait until it is done, as they do if rows have other values than 0, or when the migration is reversed.

    In the database the primary key gets the column. Other unique constraints must have it, and other tables can refer
    to this one only by fields with ``db_constraint=False``. On other databases it does nothing.

    With ``ENGINE = "stator.citus"``, Citus distributes the table over its nodes in 32 shards, beside the table
    ``colocate_with`` if one is named. Programs wait while it copies the rows. With ``tasks.Task``, the runs are beside
    their tasks, and every node has the queues; the database has no foreign keys to queues then.
    """

    __module__ = "stator.migration_operations"

    def __init__(self, model_name: str, by: str, partitions: int = 8, colocate_with: str | None = None) -> None:
        if not (isinstance(partitions, int) and 2 <= partitions <= len(SPREAD)):
            raise ValueError(
                f"Distribute({model_name!r}, {by!r}): partitions must be from 2 to {len(SPREAD)}, got {partitions!r}"
            )
        super().__init__(model_name)
        self.by = by
        self.partitions = partitions
        self.colocate_with = colocate_with

    def describe(self) -> str:
        """Return a description for people."""
        return f"Divide the table of {self.model_name} by {self.by} over {self.partitions} partitions"

    @property
    def migration_name_fragment(self) -> str:
        """A part of the migration's name."""
        return f"distribute_{self.model_name.lower().replace('.', '_')}"

    def _scheme(self, model: type[Model]) -> Scheme:
        fields = {field.name: field for field in model._meta.local_concrete_fields}
        field = fields.get(self.by)
        wrong = wrong_spread(field) if field else "is no field"
        if field is None or wrong:
            raise CommandError(
                f"Distribute: {self.by!r} of {model._meta.label} {wrong}. Name the column of StatorMeta.spread."
            )
        # Migrations have a plain field in place of Stator's.
        is_ours = field.deconstruct()[1:] == SpreadField().deconstruct()[1:]
        return (ByValue if is_ours else ByHash)(str(field.column), self.partitions)

    def _converted(self, editor: BaseDatabaseSchemaEditor, model: type[Model], scheme: Scheme) -> Conversion:
        if capabilities_of(editor.connection).has_nodes:
            # The model of a migration has a plain field, and the installed code may not have the model any more.
            installed = apps.all_models[model._meta.app_label].get(str(model._meta.model_name))
            options = options_of(installed) if installed else None
            return NodesConversion(editor, model, scheme, self.colocate_with, options)
        return super()._converted(editor, model, scheme)
