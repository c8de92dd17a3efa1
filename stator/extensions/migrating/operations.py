"""Migration operations for renamed and removed states, and for renamed models.

Migrations name them in ``stator.migration_operations``.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from random import uniform
from time import monotonic, sleep

from django.apps import apps
from django.core.management.base import CommandError
from django.db import OperationalError, connections, router, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations import Migration, RenameModel
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState
from django.db.models import Exists, F, IntegerField, Model, OuterRef, QuerySet
from django.db.models.signals import pre_migrate

from stator.capabilities import capabilities_of
from stator.rows.clock import Now
from stator.rows.life import continued
from stator.rows.meta import field_of, model_named
from stator.rows.record_tables import RECORD_TABLES
from stator.rows.state_column import USUAL_NAME
from stator.table_operations import TableOperation

# Rows in one batch, which is one transaction unless the migration is one. Passes over the table, because programs with
# the former code may add rows meanwhile. The most rows that an error message counts.
BATCH, PASSES, COUNTED = 1000, 5, 1000
# Seconds between two batches on SQLite.
MAX_PAUSE = 0.25
# How often a batch is tried if it loses to transactions of workers.
TRIES = 5

# The columns of a row that is due now, without a claim. In states that nothing attempts, workers clear the ready mark.
AT_ONCE: dict[str, object] = {
    "state_ready": True, "state_next_attempt": None, "state_claim": None, "state_locked_until": None,
}  # fmt: skip


class RowOperation(TableOperation):
    """The base of operations on all rows of a model in the state ``old``, by its name or its stored value.

    ``field``: the name of the field with the state, which migrations have as a plain field.
    """

    def __init__(self, model_name: str, old: str | int, new: str | int | None = None, field: str = USUAL_NAME) -> None:
        super().__init__(model_name)
        self.old = old
        self.new = new
        self.field = field

    def _in(self, model: type[Model], alias: str, state: object) -> QuerySet[Model]:
        return QuerySet(model, using=alias).filter(**{self.field: self._stored(model, state)})

    def _stored(self, model: type[Model], state: object) -> object:
        """Return what is stored for a state that is given by its value, or by a name that migrations recorded."""
        known = dict(field_of(model, self.field).flatchoices)
        return state if state in known else {name: value for value, name in known.items()}.get(state, state)


class RenameState(RowOperation):
    """Rename the state ``old`` of a model to ``new`` in all rows, or store another value for it.

    ``makemigrations`` writes this operation for ``renamed_from`` and for a changed value. Attempts, times and pauses of
    the state stay. A claim on a row ends, and the row is attempted again. Reversing the migration renames back. Each
    batch of 1,000 rows is committed if the migration has ``atomic = False``, as generated ones have. If it is
    interrupted, run ``migrate`` again.
    """

    __module__ = "stator.migration_operations"
    new: str | int

    def __init__(self, model_name: str, old: str | int, new: str | int, field: str = USUAL_NAME) -> None:
        super().__init__(model_name, old, new, field)

    def forwards(self, editor: BaseDatabaseSchemaEditor, model: type[Model]) -> None:
        """Rename the state in all rows."""
        self._rename(editor.connection, model, self.old, self.new)

    def backwards(self, editor: BaseDatabaseSchemaEditor, model: type[Model]) -> None:
        """Give all rows the former name back."""
        self._rename(editor.connection, model, self.new, self.old)

    def describe(self) -> str:
        """Return a description for people."""
        return f"Rename the state {self.old} of {self.model_name} to {self.new}"

    def _rename(self, connection: BaseDatabaseWrapper, model: type[Model], old: str | int, new: str | int) -> None:
        own = {field.name for field in model._meta.concrete_fields}
        # A table of a migration before the column.
        kept = {name: value for name, value in continued(1).items() if name in own}
        changes: dict[str, object] = {
            **kept,
            self.field: self._stored(model, new),
            "state_version": F("state_version") + 1,
        }
        if self._is_stored(model, old):
            change_rows(self._in(model, connection.alias, old).filter(state_claim=None), changes)
            change_rows(self._in(model, connection.alias, old), changes | AT_ONCE)
        if isinstance(old, str) and isinstance(new, str):
            for records, rewrite in _rewritten(connection):
                rewrite(records.filter(model_label=model._meta.label_lower, state=old), {"state": new})

    def _is_stored(self, model: type[Model], state: object) -> bool:
        """Return whether rows may have this; of a state with a number, people have stored the name."""
        numbers = isinstance(field_of(model, self.field), IntegerField)
        return isinstance(state, int) == numbers

    @property
    def migration_name_fragment(self) -> str:
        """A part of the migration's name."""
        return f"rename_{self.old}_of_{self.model_name.lower()}"


class RemapState(RowOperation):
    """Move all rows in the state ``old`` of a model to the state ``new``; if ``new`` is None, fail if there are any.

    ``makemigrations`` writes this operation, with None, for a state that was removed from the graph. Rows enter ``new``
    as if moved by hand: claims end, and attempts and times start anew. No history is written. Reversing the migration
    moves nothing. Batches are as in :class:`RenameState`.
    """

    __module__ = "stator.migration_operations"

    def forwards(self, editor: BaseDatabaseSchemaEditor, model: type[Model]) -> None:
        """Move the rows; if there are some and ``new`` is None, raise ``CommandError``."""
        rows = self._in(model, editor.connection.alias, self.old)
        known = dict(field_of(model, self.field).flatchoices)
        # The field has the states of the future graph, unless it is altered only afterwards.
        names = [value if isinstance(value, str) else str(name) for value, name in known.items()]
        if self.new is not None and known and self.old not in known and self._stored(model, self.new) not in known:
            raise CommandError(
                f"RemapState({self.model_name!r}, {self.old!r}, {self.new!r}): the graph of {model._meta.label} has no "
                f"state {self.new!r}. Name one of its states in the migration: {', '.join(names)}."
            )
        if self.new is not None:
            entering = {
                self.field: self._stored(model, self.new),
                "state_changed": Now(),
                "state_attempted": None,
                **AT_ONCE,
            }
            counts = dict.fromkeys(("state_attempts", "state_failures", "state_crashes"), 0)
            change_rows(rows, {**entering, **counts, "state_version": F("state_version") + 1})
        elif count := len(rows.values_list("pk")[: COUNTED + 1]):
            raise CommandError(
                f"{min(count, COUNTED):,}{'+' if count > COUNTED else ''} rows of {model._meta.label} are in the state "
                f"{self.old!r}, which its graph no longer has. In this migration, name the state that they enter: "
                f"RemapState({self.model_name!r}, {self.old!r}, 'STATE'{self._of_field}). Or move them with the "
                "previous release. Then migrate again."
            )

    def describe(self) -> str:
        """Return a description for people."""
        if self.new is None:
            return f"Refuse if rows of {self.model_name} are in the removed state {self.old}"
        return f"Move rows of {self.model_name} from the state {self.old} to {self.new}"

    @property
    def _of_field(self) -> str:
        return f", field={self.field!r}" if self.field != USUAL_NAME else ""

    @property
    def migration_name_fragment(self) -> str:
        """A part of the migration's name."""
        return f"remove_{self.old}_of_{self.model_name.lower()}"


def change_rows(
    rows: QuerySet[Model], changes: Mapping[str, object], walked: Callable[[int], object] = lambda count: None
) -> None:
    """Write ``changes`` to all rows of the queryset in batches; they must take the rows out of the queryset.

    ``walked`` is called with the number of rows of the table that a pass has come by.
    """
    every: QuerySet[Model] = QuerySet(rows.model, using=rows.db).order_by("pk")
    for _ in range(PASSES):
        if not rows.exists():
            return
        part, passed = every, 0
        # Batches go by key over the whole table: no index has all rows by state, so a filter would read it each time.
        while keys := list(part.values_list("pk", flat=True)[:BATCH]):
            began = monotonic()
            _move_batch(rows.filter(pk__gte=keys[0], pk__lte=keys[-1]), changes)
            part, passed = every.filter(pk__gt=keys[-1]), passed + len(keys)
            walked(passed)
            _give_way(rows.db, monotonic() - began)


def _give_way(alias: str, took: float) -> None:
    """Leave a database with one writer to other programs for as long as a batch took.

    SQLite has no queue of writers: other programs ask again every tenth of a second, and would find it locked for many
    seconds.
    """
    connection = connections[alias]
    if not (capabilities_of(connection).concurrent_writers or connection.in_atomic_block):
        sleep(min(took, MAX_PAUSE))


def _move_batch(rows: QuerySet[Model], changes: Mapping[str, object]) -> None:
    """Write ``changes`` to the rows, again if a worker's transaction was preferred to this one, as after a deadlock."""
    for tries_left in reversed(range(TRIES)):
        try:
            _write(rows, changes)
        except OperationalError:
            if not tries_left or connections[rows.db].in_atomic_block:
                raise
            sleep(uniform(0, MAX_PAUSE))
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


class RenameRecords(Operation):
    """Give everything that is recorded of a model to its new label: pauses, history, reports, statistics, permission.

    These records name a model by its label, such as ``shop.Invoice``. ``migrate`` does this by itself after each
    ``RenameModel``. For a model that moves to another app, put the operation into the migration that moves it. Where
    both labels have a record of one object or hour, the record of ``old`` stays. Batches are as in
    :class:`RenameState`.
    """

    __module__ = "stator.migration_operations"
    reduces_to_sql = False

    def __init__(self, old: str, new: str) -> None:
        for label in (old, new):
            if label.count(".") != 1:
                raise ValueError(f"RenameRecords({old!r}, {new!r}): {label!r} is not a label such as 'shop.Invoice'")
        self.old = old
        self.new = new

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Change nothing: the records are rows."""

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        """Give the records to the new label."""
        self._rename(schema_editor.connection, self.old.lower(), self.new.lower())

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        """Give the records back to the former label."""
        self._rename(schema_editor.connection, self.new.lower(), self.old.lower())

    def describe(self) -> str:
        """Return a description for people."""
        return f"Give what Stator recorded of {self.old} to {self.new}"

    @property
    def migration_name_fragment(self) -> str:
        """A part of the migration's name."""
        return f"records_of_{self.new.lower().replace('.', '_')}"

    def _rename(self, connection: BaseDatabaseWrapper, old: str, new: str) -> None:
        alias = connection.alias
        for stored, rewrite in _rewritten(connection):
            rewrite(stored.filter(model_label=old), {"model_label": new})
        for records in [table.model for table in RECORD_TABLES if table.labelled]:
            if _is_here(records, connection):
                rows: QuerySet[Model] = QuerySet(records, using=alias)
                for unique in records._meta.total_unique_constraints:
                    same = {name: OuterRef(name) for name in unique.fields if name != "model_label"}
                    _by_keys(
                        rows.filter(Exists(rows.filter(model_label=old, **same)), model_label=new), QuerySet.delete
                    )
                _by_keys(rows.filter(model_label=old), lambda part: part.update(model_label=new))
        if apps.is_installed("django.contrib.auth"):
            permission = model_named("auth.Permission")
            if _is_here(permission, connection):
                _rename_permission(QuerySet(permission, using=alias), old, new)


def _rewritten(
    connection: BaseDatabaseWrapper,
) -> Iterator[tuple[QuerySet[Model], Callable[[QuerySet[Model], dict[str, str]], None]]]:
    """Yield the records of which workers notice new ones alone, with what gives them other values."""
    for table in RECORD_TABLES:
        if table.rewrite is not None and _is_here(table.model, connection):
            yield QuerySet(table.model, using=connection.alias), table.rewrite


def _is_here(records: type[Model], connection: BaseDatabaseWrapper) -> bool:
    """Return whether a table is in this database; the running ``migrate`` may create it only later."""
    allowed = router.allow_migrate_model(connection.alias, records)
    return allowed and records._meta.db_table in connection.introspection.table_names()


def _by_keys(rows: QuerySet[Model], act: Callable[[QuerySet[Model]], object]) -> None:
    """Call ``act`` with batches of the rows until none is left."""
    while keys := list(rows.values_list("pk", flat=True)[:BATCH]):
        act(QuerySet(rows.model, using=rows.db).filter(pk__in=keys))


def _rename_permission(rows: QuerySet[Model], old: str, new: str) -> None:
    """Rename the permission to force moves, so that its grants stay; ``migrate`` would create one without any."""
    (app, former), (other, name) = old.split("."), new.split(".")
    # Whether the content type has its new name already depends on the order of the apps.
    mine = rows.filter(content_type__app_label=app, content_type__model__in=[former, name])
    if app == other and not mine.filter(codename=f"force_{name}").exists():
        pks = list(mine.filter(codename=f"force_{former}").values_list("pk", flat=True))
        rows.filter(pk__in=pks).update(codename=f"force_{name}")


def connect() -> None:
    """Let ``migrate`` rename the records of a model with the model."""
    pre_migrate.connect(_add_to_plan, sender=apps.get_app_config("stator"), dispatch_uid="stator.records")


def _add_to_plan(plan: Iterable[tuple[Migration, bool]] | None = None, **kwargs: object) -> None:
    """Insert an operation after each ``RenameModel`` of a plan, as Django does for content types."""
    for migration, _ in plan or ():
        operations = [each for one in migration.operations for each in _with_records(migration, one)]
        vars(migration).update(operations=operations)


def _with_records(migration: Migration, operation: Operation) -> Iterator[Operation]:
    yield operation
    if isinstance(operation, RenameModel):
        yield RenameRecords(*(f"{migration.app_label}.{name}" for name in (operation.old_name, operation.new_name)))
