"""Strict mode: a PostgreSQL trigger that refuses raw writes that revive an ended claim of an object."""

from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models import Model

from stator.capabilities import Capabilities
from stator.rows.meta import column_of, field_of
from stator.table_operations import TableOperation

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


class StrictFence(TableOperation):
    """Refuse, on PostgreSQL, an UPDATE that revives an ended claim of a model's object, or an earlier version of it.

    ``save()`` and ``update()`` cannot do that. Raw SQL, a restored copy of a row, or another program can; after that,
    the holder of an ended claim could overwrite a newer outcome. The statement fails with ``IntegrityError``. Claims
    and records of workers pay one comparison for it.

    ``enabled=False`` drops the trigger of an earlier migration. Reversing the migration does the opposite. On other
    databases it does nothing.
    """

    reduces_to_sql = True

    def __init__(self, model_name: str, *, enabled: bool = True) -> None:
        super().__init__(model_name)
        self.enabled = enabled

    def works_with(self, capabilities: Capabilities) -> bool:
        return capabilities.has_plpgsql

    def forwards(self, editor: BaseDatabaseSchemaEditor, model: type[Model]) -> None:
        """Create or drop the trigger."""
        _set(editor, model, self.enabled)

    def backwards(self, editor: BaseDatabaseSchemaEditor, model: type[Model]) -> None:
        """Drop the trigger, or create it again if ``enabled`` is False."""
        _set(editor, model, not self.enabled)

    def describe(self) -> str:
        """Return a description for people."""
        return f"{'Refuse' if self.enabled else 'Allow'} raw writes that revive an ended claim of {self.model_name}"

    @property
    def migration_name_fragment(self) -> str:
        """A part of the migration's name."""
        return f"{self.model_name.lower()}_strict_fence"


def _set(editor: BaseDatabaseSchemaEditor, model: type[Model], enabled: bool) -> None:
    own = {field.name: editor.quote_name(column_of(field)) for field in model._meta.local_concrete_fields}
    if "state_claim" not in own:
        raise ValueError(f"{model.__name__} has no state_claim in its own table; name the model that is a StatorModel")
    table, trigger = editor.quote_name(model._meta.db_table), editor.quote_name(TRIGGER)
    if not enabled:
        editor.execute(f"DROP TRIGGER IF EXISTS {trigger} ON {table}", params=None)
        editor.execute(DROP_FUNCTION, params=None)
        return
    editor.execute(CREATE_FUNCTION, params=None)
    # The comparison is in the trigger's condition, not in its function, so that allowed writes call no function.
    moment = field_of(model, "state_attempted").db_type(editor.connection)
    columns = REFUSED.format(moment=moment, **{column: own[column] for column in COLUMNS})
    editor.execute(
        f"CREATE OR REPLACE TRIGGER {trigger} BEFORE UPDATE ON {table} "
        f"FOR EACH ROW WHEN ({columns}) EXECUTE FUNCTION {trigger}()",
        params=None,
    )
