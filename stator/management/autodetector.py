"""What ``manage.py makemigrations`` adds to Django's own changes: operations for renamed and removed states."""

from collections.abc import Iterator

from django.core.management.commands import makemigrations, migrate
from django.db.migrations import AlterField, Migration, autodetector
from django.db.migrations.autodetector import MigrationAutodetector
from django.db.migrations.graph import MigrationGraph
from django.db.migrations.operations.base import Operation
from django.db.migrations.writer import MigrationWriter
from django.db.models import Field

from stator.fields import StateField
from stator.graph import StateGraph
from stator.migration_operations import RemapState, RenameState, RowOperation

CLASS = "class Migration(migrations.Migration):\n"
NOT_ATOMIC = """
    # Each batch of rows is committed by itself, so no lock is held for long. If it is interrupted, migrate again.
    atomic = False
"""


def connect() -> None:
    """Add :class:`StateChanges` to Django's autodetector, and so for the commands of other apps that use it.

    Commands of our own would not be found if another app has some. Django's check ``commands.E001`` compares the
    autodetectors of ``makemigrations`` and ``migrate``. A ``migrate`` of another app, such as that of django-tenants,
    imports Django's class by its name when the command is loaded, which is after this.
    """
    current = makemigrations.Command.autodetector
    if not issubclass(current, StateChanges):
        both = type("MigrationAutodetector", (StateChanges, current), {})
        makemigrations.Command.autodetector = migrate.Command.autodetector = both
        vars(autodetector)["MigrationAutodetector"] = both
        names = vars(makemigrations)
        names["MigrationWriter"] = type("MigrationWriter", (BatchWriter, names["MigrationWriter"]), {})


class BatchWriter(MigrationWriter):
    """A writer that also writes ``atomic = False``, for which Django's has no place."""

    def as_string(self) -> str:
        """Return the file's text."""
        text = super().as_string()
        return text if self.migration.atomic else text.replace(CLASS, CLASS + NOT_ATOMIC, 1)


class StateChanges(MigrationAutodetector):
    """An autodetector that adds an operation on the rows for each name that a graph no longer has.

    These operations get a migration that is not atomic, so that each of their batches is committed. Django's own
    changes stay in atomic migrations: one that failed in between could not be applied again.
    """

    migrations: dict[str, list[Migration]]

    def generate_altered_fields(self) -> None:
        """Generate the operations on rows after those on fields, so that they know the new names."""
        super().generate_altered_fields()
        found = [
            (app, operation) for app, model in sorted(self.to_state.models) for operation in self._rows(app, model)
        ]
        # Refusals first, so that nothing was moved if there is one.
        for app_label, operation in sorted(found, key=lambda each: isinstance(each[1], RenameState)):
            self.add_operation(app_label, operation)

    def _rows(self, app_label: str, model_name: str) -> list[RowOperation]:
        field = self.to_state.models[app_label, model_name].fields.get("state")
        before = self.renamed_models.get((app_label, model_name), model_name).lower()
        former = self.from_state.models.get((app_label, before))
        if isinstance(field, StateField) and former and "state" in former.fields:
            return _changes(model_name, former.fields["state"], field.graph)
        return []

    def _build_migration_list(self, graph: MigrationGraph | None = None) -> None:
        super()._build_migration_list(graph)  # type: ignore[misc]
        for app_label, found in self.migrations.items():
            self.migrations[app_label] = [part for migration in found for part in _parts(migration)]


def _changes(model_name: str, former: Field, graph: type[StateGraph]) -> list[RowOperation]:
    gone = sorted({str(value) for value, _ in former.flatchoices} - set(graph.states))
    heirs = graph.renames
    return [
        RenameState(model_name, name, heirs[name].name) if name in heirs else RemapState(model_name, name)
        for name in gone
    ]


def _parts(migration: Migration) -> Iterator[Migration]:
    """Split a migration into the operations before those on rows, these, and the others."""
    operations = migration.operations
    first = next((at for at, each in enumerate(operations) if isinstance(each, RowOperation)), None)
    if first is None:
        yield migration
        return
    # Alterations of the states themselves send no SQL, so they may be in the same migration.
    while first and _alters_states(operations[first - 1]):
        first -= 1
    last = max(at for at, each in enumerate(operations) if isinstance(each, RowOperation)) + 1
    on_rows = operations[first:last]
    parts = [part for part in (operations[:first], on_rows, operations[last:]) if part]
    # Django makes each part depend on the one before. The last one keeps the name, on which other apps may depend.
    for number, part in enumerate(parts, 1):
        own = migration if part is parts[-1] else type(migration)(f"{migration.name}_{number}", migration.app_label)
        vars(own).update(operations=part, atomic=part is not on_rows, dependencies=list(migration.dependencies))
        yield own


def _alters_states(operation: Operation) -> bool:
    return isinstance(operation, AlterField) and operation.name == "state"
