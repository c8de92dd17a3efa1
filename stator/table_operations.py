"""The base of migration operations on the table of one model."""

from inspect import signature

from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState
from django.db.models import Model

from stator.capabilities import Capabilities, capabilities_of

# A table itself, or the partitions that have its rows.
LEAVES = (
    "SELECT coalesce(relid, %(table)s::regclass) "
    "FROM (SELECT) one LEFT JOIN pg_partition_tree(%(table)s::regclass) ON isleaf"
)


class TableOperation(Operation):
    """The base of operations on the table of one model, of which Django's models see nothing.

    They do nothing where the router allows no migration of the model, or the database lacks what they need.
    """

    reduces_to_sql = False

    def __init__(self, model_name: str) -> None:
        self.model_name = model_name

    def deconstruct(self) -> tuple[str, list[object], dict[str, object]]:
        # All by name, as they are written into a file: an operation that is read from there is equal to this one.
        args, kwargs = vars(self)["_constructor_args"]
        _, *given = signature(type(self).__init__).bind(self, *args, **kwargs).arguments.items()
        return type(self).__name__, [], dict(given)

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Change nothing: Django's models do not show what the operation changes."""

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        """Apply the operation."""
        if model := self._model_here(app_label, schema_editor, to_state):
            self.forwards(schema_editor, model)

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        """Reverse the operation."""
        if model := self._model_here(app_label, schema_editor, from_state):
            self.backwards(schema_editor, model)

    def forwards(self, editor: BaseDatabaseSchemaEditor, model: type[Model]) -> None:
        """Change the table of the model."""
        raise NotImplementedError

    def backwards(self, editor: BaseDatabaseSchemaEditor, model: type[Model]) -> None:
        """Change the table back."""

    def works_with(self, capabilities: Capabilities) -> bool:
        """Return whether a database with these capabilities has something to change."""
        return True

    def model_of(self, app_label: str, state: ProjectState) -> type[Model]:
        """Return the model whose table changes; ``model_name`` is its name, or a label if it is of another app."""
        name = self.model_name
        return state.apps.get_model(name if "." in name else f"{app_label}.{name}")

    def _model_here(self, app_label: str, editor: BaseDatabaseSchemaEditor, state: ProjectState) -> type[Model] | None:
        if not self.works_with(capabilities_of(editor.connection)):
            return None
        model = self.model_of(app_label, state)
        return model if self.allow_migrate_model(editor.connection.alias, model) else None
