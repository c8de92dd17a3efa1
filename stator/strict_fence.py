"""Strict mode: a PostgreSQL trigger that refuses raw writes that revive an ended claim of an object."""

from typing import Any

from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState
from django.db.models import Model

from stator.capabilities import capabilities_of
from stator.rows.meta import column_of, field_of

TRIGGER = "stator_strict_fence"

# A new claim must look as if a worker's statement had made it: on a free row, one attempt more, attempted now. An old
# copy of a row does not, or has fewer moves.
REFUSED = """
  NEW.{state_version} < OLD.{state_version}
  OR NEW.{state_claim} IS NOT NULL AND NEW.{state_claim} IS DISTINCT FROM OLD.{state_claim} AND (
    OLD.{state_claim} IS NULL
    AND NEW.{state_attempts} = OLD.{state_attempts} + 1
    AND NEW.{state_attempted} = CAST(statement_timestamp() AS {moment})
  ) IS NOT TRUE"""
COLUMNS = ("state_version", "state_claim", "state_attempts", "state_attempted")

# One function for all tables. It reads the table's name and key when it refuses a write, so renames cannot break it.
CREATE_FUNCTION = """
CREATE OR REPLACE FUNCTION stator_strict_fence() RETURNS trigger LANGUAGE plpgsql AS $stator$
DECLARE pk text;
BEGIN
  SELECT to_jsonb(OLD) ->> attname INTO pk FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0]
  WHERE indrelid = TG_RELID AND indisprimary;
  RAISE EXCEPTION USING ERRCODE = 'check_violation',
    MESSAGE = format('this write would revive an ended claim, or an earlier version, of %s %s', TG_TABLE_NAME, pk),
    HINT = 'Leave the columns of the framework out of raw writes; move objects by transition_perform().';
END
$stator$"""
DROP_FUNCTION = """
DO $stator$ BEGIN
  DROP FUNCTION IF EXISTS stator_strict_fence();
EXCEPTION WHEN dependent_objects_still_exist THEN
  NULL;
END $stator$"""


class StrictFence(Operation):
    """Refuse, on PostgreSQL, an UPDATE that revives an ended claim of a model's object, or an earlier version of it.

    ``save()`` and ``update()`` cannot do that. Raw SQL, a restored copy of a row, or another program can; after that,
    the holder of an ended claim could overwrite a newer outcome. The statement fails with ``IntegrityError``. Claims
    and records of workers pay one comparison for it.

    ``enabled=False`` drops the trigger of an earlier migration. Reversing the migration does the opposite. On other
    databases it does nothing.
    """

    reversible = True
    reduces_to_sql = True

    def __init__(self, model_name: str, *, enabled: bool = True) -> None:
        self.model_name = model_name
        self.enabled = enabled

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        return type(self).__name__, [self.model_name], {} if self.enabled else {"enabled": False}

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Change nothing: Django's models know no triggers."""

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        """Create or drop the trigger."""
        self._set(schema_editor, to_state.apps.get_model(app_label, self.model_name), self.enabled)

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        """Drop the trigger, or create it again if ``enabled`` is False."""
        self._set(schema_editor, from_state.apps.get_model(app_label, self.model_name), not self.enabled)

    def describe(self) -> str:
        """Return a description for people."""
        return f"{'Refuse' if self.enabled else 'Allow'} raw writes that revive an ended claim of {self.model_name}"

    @property
    def migration_name_fragment(self) -> str:
        """A part of the migration's name."""
        return f"{self.model_name.lower()}_strict_fence"

    def _set(self, schema_editor: BaseDatabaseSchemaEditor, model: type[Model], enabled: bool) -> None:
        connection = schema_editor.connection
        if not capabilities_of(connection).has_plpgsql or not self.allow_migrate_model(connection.alias, model):
            return
        own = {field.name: schema_editor.quote_name(column_of(field)) for field in model._meta.local_concrete_fields}
        if "state_claim" not in own:
            raise ValueError(
                f"{self.model_name} has no state_claim in its own table; name the model that is a StatorModel"
            )
        table, trigger = schema_editor.quote_name(model._meta.db_table), schema_editor.quote_name(TRIGGER)
        if not enabled:
            schema_editor.execute(f"DROP TRIGGER IF EXISTS {trigger} ON {table}", params=None)
            schema_editor.execute(DROP_FUNCTION, params=None)
            return
        schema_editor.execute(CREATE_FUNCTION, params=None)
        # The comparison is in the trigger's condition, not in its function, so that allowed writes call no function.
        moment = field_of(model, "state_attempted").db_type(connection)
        columns = REFUSED.format(moment=moment, **{column: own[column] for column in COLUMNS})
        schema_editor.execute(
            f"CREATE OR REPLACE TRIGGER {trigger} BEFORE UPDATE ON {table} "
            f"FOR EACH ROW WHEN ({columns}) EXECUTE FUNCTION {trigger}()",
            params=None,
        )
