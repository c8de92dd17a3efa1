"""Migration operations for projects: renamed and removed states, a trigger for raw SQL, and storage parameters."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from random import uniform
from time import monotonic, sleep
from typing import Any

from django.core.management.base import CommandError
from django.db import OperationalError, connections, transaction
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState
from django.db.models import F, Model, QuerySet
from django.db.models.functions import Now

from stator.capabilities import capabilities_of
from stator.rows.columns import FRAMEWORK_COLUMNS, first_attempt, ready_at_once
from stator.rows.meta import column_of, field_of, graph_of, options_of
from stator.rows.reports import REASON_LENGTH, History

TRIGGER = "stator_reconcile"

# Names of storage parameters, including those of a TOAST table; PostgreSQL takes them without quotes.
PARAMETER = re.compile(r"[a-z_]+(\.[a-z_]+)?")

# Rows in one batch, which is one transaction if the migration is not; passes over the table, because programs with the
# former code may add rows meanwhile; and the most rows that an error message counts.
BATCH, PASSES, COUNTED = 1000, 5, 1000
# Seconds between two batches on SQLite.
LONGEST_PAUSE = 0.25
# How often a batch is tried that loses to transactions of workers.
TRIES = 5

# Due now, without a claim. In states that nothing attempts, workers clear the ready mark.
AT_ONCE: dict[str, Any] = {
    "state_ready": True, "state_next_attempt": None, "state_claim": None, "state_locked_until": None,
}  # fmt: skip


class RowOperation(Operation):
    """The base of operations on all rows of a model in the state ``old``; the models of migrations do not change."""

    # Even in an atomic migration of a database that cannot roll back changes of tables, batches are committed.
    atomic = False

    reversible = True
    reduces_to_sql = False

    def __init__(self, model_name: str, old: str, new: str | None = None) -> None:
        self.model_name = model_name
        self.old = old
        self.new = new

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        return type(self).__name__, [self.model_name, self.old, self.new], {}

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Change nothing: the names are the choices of the field, which another operation alters."""


class RenameState(RowOperation):
    """Rename the state ``old`` of a model to ``new`` in all rows.

    ``makemigrations`` writes this operation for ``renamed_from``. Attempts and times stay. A claim on a row ends, and
    the row is attempted again. Reversing the migration renames back. Each batch of 1,000 rows is committed if the
    migration has ``atomic = False``, as generated ones have. If it is interrupted, run ``migrate`` again.
    """

    new: str

    def __init__(self, model_name: str, old: str, new: str) -> None:
        super().__init__(model_name, old, new)

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        """Rename the state in all rows."""
        self._rename(schema_editor, to_state.apps.get_model(app_label, self.model_name), self.old, self.new)

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        """Give all rows the former name back."""
        self._rename(schema_editor, to_state.apps.get_model(app_label, self.model_name), self.new, self.old)

    def describe(self) -> str:
        """Return a description for people."""
        return f"Rename the state {self.old} of {self.model_name} to {self.new}"

    @property
    def migration_name_fragment(self) -> str:
        """A part of the migration's name."""
        return f"rename_{self.old}_of_{self.model_name.lower()}"

    def _rename(self, schema_editor: BaseDatabaseSchemaEditor, model: type[Model], old: str, new: str) -> None:
        alias = schema_editor.connection.alias
        if self.allow_migrate_model(alias, model):
            changes: dict[str, Any] = {"state": new, "state_version": F("state_version") + 1}
            _move(_rows_in(model, alias, old).filter(state_claim=None), changes)
            _move(_rows_in(model, alias, old), changes | AT_ONCE)


class RemapState(RowOperation):
    """Move all rows in the state ``old`` of a model to the state ``new``; if ``new`` is None, fail if there are any.

    ``makemigrations`` writes this operation, with None, for a state that was removed from the graph. Rows enter ``new``
    as if moved by hand: claims end, and attempts and times start anew. No history is written. Reversing the migration
    moves nothing. Batches are those of :class:`RenameState`.
    """

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        """Move the rows; if there are some and ``new`` is None, raise ``CommandError``."""
        model, alias = to_state.apps.get_model(app_label, self.model_name), schema_editor.connection.alias
        if not self.allow_migrate_model(alias, model):
            return
        rows = _rows_in(model, alias, self.old)
        names = [name for name, _ in model._meta.get_field("state").flatchoices]
        # The names are those of the graph as it will be, unless the field is altered only afterwards.
        if self.new is not None and names and self.old not in names and self.new not in names:
            raise CommandError(
                f"RemapState({self.model_name!r}, {self.old!r}, {self.new!r}): the graph of {model._meta.label} has no "
                f"state {self.new!r}. Name one of its states in the migration: {', '.join(names)}."
            )
        if self.new is not None:
            entering = {"state": self.new, "state_changed": Now(), "state_attempted": None, **AT_ONCE}
            counts = dict.fromkeys(("state_attempts", "state_failures", "state_crashes"), 0)
            _move(rows, {**entering, **counts, "state_version": F("state_version") + 1})
        elif found := len(rows.values_list("pk")[: COUNTED + 1]):
            raise CommandError(
                f"{min(found, COUNTED):,}{'+' if found > COUNTED else ''} rows of {model._meta.label} are in the state "
                f"{self.old!r}, which its graph no longer has. In this migration, name the state that they enter: "
                f"RemapState({self.model_name!r}, {self.old!r}, 'STATE'). Or move them with the previous release. "
                "Then migrate again."
            )

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        """Move nothing: rows do not store the state they came from."""

    def describe(self) -> str:
        """Return a description for people."""
        if self.new is None:
            return f"Refuse if rows of {self.model_name} are in the removed state {self.old}"
        return f"Move rows of {self.model_name} from the state {self.old} to {self.new}"

    @property
    def migration_name_fragment(self) -> str:
        """A part of the migration's name."""
        return f"remove_{self.old}_of_{self.model_name.lower()}"


def _rows_in(model: type[Model], alias: str, state: str) -> QuerySet[Model]:
    return QuerySet(model, using=alias).filter(state=state)


def _move(rows: QuerySet[Model], changes: Mapping[str, object]) -> None:
    """Write ``changes`` to all rows of the queryset in batches; they must take the rows out of the queryset."""
    every: QuerySet[Model] = QuerySet(rows.model, using=rows.db).order_by("pk")
    for _ in range(PASSES):
        if not rows.exists():
            return
        part = every
        # By key over the whole table: no index has all rows by state, so a filter would read the table for each batch.
        while keys := list(part.values_list("pk", flat=True)[:BATCH]):
            began = monotonic()
            _move_batch(rows.filter(pk__gte=keys[0], pk__lte=keys[-1]), changes)
            part = every.filter(pk__gt=keys[-1])
            _give_way(rows.db, monotonic() - began)


def _give_way(alias: str, took: float) -> None:
    """Leave a database with one writer to others for as long as a batch took.

    SQLite has no queue of writers: others ask again every tenth of a second, and would find it locked for many seconds.
    """
    connection = connections[alias]
    if not (capabilities_of(connection).concurrent_writers or connection.in_atomic_block):
        sleep(min(took, LONGEST_PAUSE))


def _move_batch(rows: QuerySet[Model], changes: Mapping[str, object]) -> None:
    """Write ``changes`` to the rows, again if a worker's transaction was preferred to this one, as after a deadlock."""
    for tries_left in reversed(range(TRIES)):
        try:
            _write(rows, changes)
        except OperationalError:
            if not tries_left or connections[rows.db].in_atomic_block:
                raise
            sleep(uniform(0, LONGEST_PAUSE))
        else:
            return


def _write(rows: QuerySet[Model], changes: Mapping[str, object]) -> None:
    """Write ``changes`` to the rows; lock them in the order of their keys first, as workers do.

    A database with one writer has no locks on rows. There it is one statement, which waits for the lock before it
    reads: a transaction that has read cannot write any more after another one has.
    """
    if not capabilities_of(connections[rows.db]).concurrent_writers:
        rows.update(**changes)
        return
    with transaction.atomic(using=rows.db):
        if locked := list(rows.select_for_update().order_by("pk").values_list("pk", flat=True)):
            QuerySet(rows.model, using=rows.db).filter(pk__in=locked).update(**changes)


class ReconcileTrigger(Operation):
    """Reconcile objects of a model on PostgreSQL when raw SQL changes one of ``fields``, as ``save()`` does.

    It names the states instead of reading the graph, because graphs change and migrations do not. ``settled``: the
    states from which objects return to ``initial``. ``automatic``: the states in which they are attempted now.
    ``delay``: seconds from the return to the first attempt, None for never. ``history``: write a row for each return.

    It replaces the trigger of an earlier migration; without ``fields`` it only drops that trigger. Reversing the
    migration drops the trigger. On other databases it does nothing. Workers find the objects at their next poll.
    """

    reversible = True
    reduces_to_sql = True

    def __init__(
        self,
        model_name: str,
        fields: Iterable[str],
        *,
        initial: str = "",
        automatic: Iterable[str] = (),
        settled: Iterable[str] = (),
        delay: float | None = 0,
        history: bool = False,
    ) -> None:
        self.model_name = model_name
        self.fields = list(fields)
        self.initial = initial
        self.automatic = sorted(automatic)
        self.settled = sorted(settled)
        self.delay = delay
        self.history = history
        if self.fields and not initial:
            raise ValueError(f"ReconcileTrigger({model_name!r}): initial= is missing; name the initial state")

    @classmethod
    def of(cls, model: type[Model]) -> "ReconcileTrigger":
        """Return the operation to write into a migration for a model as its code is now."""
        graph, options = graph_of(model), options_of(model)
        initial = graph.initial_state
        late = (initial.try_interval or 0) if first_attempt(initial) is not None else None
        return cls(
            model.__name__,
            options.reconcile_on,
            initial=initial.name,
            automatic=[state.name for state in graph.automatic_states],
            settled=[state.name for state in graph.terminal_states - {initial}],
            delay=0 if ready_at_once(initial) else late,
            history=options.history,
        )

    def __repr__(self) -> str:
        _, args, kwargs = self.deconstruct()
        return f"ReconcileTrigger({', '.join([*map(repr, args), *(f'{key}={kwargs[key]!r}' for key in kwargs)])})"

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        kwargs: dict[str, Any] = {"fields": self.fields}
        if self.fields:
            names = ("initial", "automatic", "settled", "delay", "history")
            kwargs |= {name: getattr(self, name) for name in names}
        return type(self).__name__, [self.model_name], kwargs

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Change nothing: Django's models know no triggers."""

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        """Create the function and the trigger, or replace them."""
        model = to_state.apps.get_model(app_label, self.model_name)
        if not self._concerns(schema_editor, model):
            return
        if not self.fields:
            self._drop(schema_editor, model)
            return
        own = {field.name: field for field in model._meta.local_concrete_fields}
        if missing := [name for name in (*self.fields, "state") if name not in own]:
            raise ValueError(
                f"{self!r}: the table of {self.model_name} has no {', '.join(missing)}; "
                "name fields of its own table, or the model that has them"
            )
        name = schema_editor.quote_name(function_name(model))
        table, trigger = schema_editor.quote_name(model._meta.db_table), schema_editor.quote_name(TRIGGER)
        columns = ", ".join(schema_editor.quote_name(column_of(own[name])) for name in self.fields)
        body = self.body(schema_editor, model)
        schema_editor.execute(
            f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $stator${body}$stator$",
            params=None,
        )
        schema_editor.execute(
            f"CREATE OR REPLACE TRIGGER {trigger} BEFORE UPDATE OF {columns} ON {table} "
            f"FOR EACH ROW EXECUTE FUNCTION {name}()",
            params=None,
        )

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        """Drop the function and the trigger."""
        model = from_state.apps.get_model(app_label, self.model_name)
        if self._concerns(schema_editor, model):
            self._drop(schema_editor, model)

    def describe(self) -> str:
        """Return a description for people."""
        if not self.fields:
            return f"Drop the reconcile trigger of {self.model_name}"
        return f"Reconcile {self.model_name} when raw SQL changes {', '.join(self.fields)}"

    @property
    def migration_name_fragment(self) -> str:
        """A part of the migration's name."""
        return f"{self.model_name.lower()}_reconcile_trigger"

    def body(self, schema_editor: BaseDatabaseSchemaEditor, model: type[Model]) -> str:
        """Return the function's body: :func:`stator.rows.reconcile.look_again` for the row that is being written.

        It skips a row if the same UPDATE writes framework columns. It also skips a row that entered its state in this
        transaction and was not attempted since: ``save()`` or ``update()`` has just reconciled it.
        """
        quote, value = schema_editor.quote_name, schema_editor.quote_value
        column = {field.name: quote(column_of(field)) for field in model._meta.concrete_fields}
        changed = {name: f"OLD.{column[name]} IS DISTINCT FROM NEW.{column[name]}" for name in self.fields}
        framework = [column[name] for name in ("state", *sorted(FRAMEWORK_COLUMNS))]
        before, after = (", ".join(f"{row}.{name}" for name in framework) for row in ("OLD", "NEW"))
        settled, automatic = (
            f"OLD.{column['state']} = ANY (ARRAY[{', '.join(map(value, names))}]::text[])"
            for names in (self.settled, self.automatic)
        )
        return f"""
BEGIN
  IF NOT ({" OR ".join(changed.values())}) OR ({before}) IS DISTINCT FROM ({after}) THEN
    RETURN NEW;
  END IF;
  IF {settled} THEN{self._history(schema_editor, model, changed) if self.history else ""}
    NEW.{column["state"]} := {value(self.initial)};
    NEW.state_changed := statement_timestamp();
    NEW.state_attempted := NULL;
    NEW.state_ready := {"true" if self.delay == 0 else "false"};
    NEW.state_next_attempt := {self._due};
    NEW.state_attempts := 0; NEW.state_failures := 0; NEW.state_crashes := 0;
    NEW.state_version := OLD.state_version + 1;
    NEW.state_claim := NULL; NEW.state_locked_until := NULL;
  ELSIF {automatic} AND NOT (
    OLD.state_changed >= transaction_timestamp() AND OLD.state_attempts = 0 AND OLD.state_claim IS NULL
  ) THEN
    NEW.state_ready := true;
    NEW.state_next_attempt := NULL;
    NEW.state_claim := NULL; NEW.state_locked_until := NULL;
  END IF;
  RETURN NEW;
END
"""

    @property
    def _due(self) -> str:
        return f"statement_timestamp() + {float(self.delay)!r} * interval '1 second'" if self.delay else "NULL"

    def _history(self, schema_editor: BaseDatabaseSchemaEditor, model: type[Model], changed: dict[str, str]) -> str:
        quote, value = schema_editor.quote_name, schema_editor.quote_value
        names = (f"CASE WHEN {changed[name]} THEN {value(name)} END" for name in sorted(changed))
        reason = f"left(concat_ws(', ', {', '.join(names)}) || ' changed', {REASON_LENGTH})"
        pk, state = (f"OLD.{quote(column_of(field_of(model, name)))}" for name in (model._meta.pk.name, "state"))
        label, kind = value(model._meta.label_lower), value(str(History.Kind.HAND.value))
        kept = {
            "model_label": label, "object_pk": f"{pk}::text", "at": "statement_timestamp()",
            "version": "OLD.state_version + 1", "kind": kind, "source": state, "to": value(self.initial),
            "actor": "''", "reason": reason, "worker": "''",
            "stay": "greatest(date_part('epoch', statement_timestamp() - OLD.state_changed), 0)",
            "attempts": "0", "error": "''", "fingerprint": "''",
        }  # fmt: skip
        table, columns, values = quote(History._meta.db_table), ", ".join(map(quote, kept)), ", ".join(kept.values())
        return f"\n    INSERT INTO {table} ({columns}) VALUES ({values});"  # noqa: S608 - quoted

    def _concerns(self, schema_editor: BaseDatabaseSchemaEditor, model: type[Model]) -> bool:
        connection = schema_editor.connection
        return capabilities_of(connection).has_plpgsql and self.allow_migrate_model(connection.alias, model)

    def _drop(self, schema_editor: BaseDatabaseSchemaEditor, model: type[Model]) -> None:
        name, table = (schema_editor.quote_name(part) for part in (function_name(model), model._meta.db_table))
        trigger = schema_editor.quote_name(TRIGGER)
        schema_editor.execute(f"DROP TRIGGER IF EXISTS {trigger} ON {table}", params=None)
        schema_editor.execute(f"DROP FUNCTION IF EXISTS {name}()", params=None)


def function_name(model: type[Model]) -> str:
    """Return the name of the function of a model's trigger: one for each table."""
    return f"{TRIGGER}_{hashlib.sha256(model._meta.db_table.encode()).hexdigest()[:12]}"


class StorageParameters(Operation):
    """Set storage parameters of a model's table on PostgreSQL, such as the fill factor and thresholds of autovacuum.

    ``parameters`` are those of the table, ``key`` those of its primary key's index. Names and values are as in
    ``ALTER TABLE ... SET``: each value is a number or a boolean, and None resets it to the server's default. PostgreSQL
    refuses unknown names. Reversing the migration resets all of them. On other databases it does nothing.
    """

    reversible = True
    reduces_to_sql = True

    def __init__(
        self, model_name: str, parameters: Mapping[str, float | None], key: Mapping[str, float | None] | None = None
    ) -> None:
        self.model_name = model_name
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

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        return type(self).__name__, [self.model_name, self.parameters], {"key": self.key} if self.key else {}

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Change nothing: Django's models know no storage parameters."""

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        """Set and reset the parameters."""
        self._alter(schema_editor, to_state.apps.get_model(app_label, self.model_name), self.parameters, self.key)

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        """Reset all parameters."""
        model = from_state.apps.get_model(app_label, self.model_name)
        self._alter(schema_editor, model, dict.fromkeys(self.parameters), dict.fromkeys(self.key))

    def describe(self) -> str:
        """Return a description for people."""
        names = dict.fromkeys([*self.parameters, *self.key])
        return f"Set {', '.join(names)} of the table of {self.model_name}"

    @property
    def migration_name_fragment(self) -> str:
        """A part of the migration's name."""
        return f"{self.model_name.lower()}_storage"

    def _alter(
        self,
        schema_editor: BaseDatabaseSchemaEditor,
        model: type[Model],
        parameters: Mapping[str, float | None],
        key: Mapping[str, float | None],
    ) -> None:
        connection = schema_editor.connection
        if not capabilities_of(connection).has_storage_parameters:
            return
        if not self.allow_migrate_model(connection.alias, model):
            return
        table = schema_editor.quote_name(model._meta.db_table)
        for body in _set_and_reset(parameters):
            schema_editor.execute(f"ALTER TABLE {table} {body}", params=None)
        name = schema_editor.quote_value(table)
        for body in _set_and_reset(key):
            # From the catalog, because the name of the index is not known.
            index = f"SELECT indexrelid::regclass FROM pg_index WHERE indrelid = {name}::regclass AND indisprimary"  # noqa: S608 - quoted
            schema_editor.execute(
                f"DO $stator$ BEGIN EXECUTE format('ALTER INDEX %s {body}', ({index})); END $stator$", params=None
            )


def _set_and_reset(parameters: Mapping[str, float | None]) -> Iterator[str]:
    """Yield the clauses for the ALTER statement of a table or an index."""
    if values := [f"{name} = {value}" for name, value in parameters.items() if value is not None]:
        yield f"SET ({', '.join(values)})"
    if names := [name for name, value in parameters.items() if value is None]:
        yield f"RESET ({', '.join(names)})"
