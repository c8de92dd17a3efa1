"""Migration operations that give a table in use the columns of the mixin, while other programs read and write it."""

import logging
from collections.abc import Callable, Iterator, Sequence
from random import uniform
from time import monotonic, sleep

from django.core.management.base import CommandError
from django.db import OperationalError, transaction
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.operations import AddField, AddIndex, RemoveField, RemoveIndex
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState
from django.db.models import Index, Model

from stator.capabilities import capabilities_of
from stator.db.retry import is_lock_timeout, is_retryable
from stator.db.tables import columns_of
from stator.extensions.migrating.filling import FillStates as FillStates
from stator.extensions.migrating.filling import KeepDueTimes as KeepDueTimes
from stator.rows.meta import field_of
from stator.statements import fetch_all

logger = logging.getLogger("stator.migrations")

# Seconds that the first try waits for the lock on the table, while other programs wait behind it. Each further try
# waits twice as long, up to the second number: a table with one slow transaction after another is never free sooner.
LOCK_TIMEOUT, MAX_LOCK_TIMEOUT = 0.5, 8.0
# Seconds that the operation tries to get the lock, and seconds between two log lines about that.
PATIENCE, REPORT_INTERVAL = 300.0, 10.0

# An operation, the state of the project before it and after it.
Step = tuple[Operation, ProjectState, ProjectState]


class AlterTableInUse(Operation):
    """Apply ``operations`` to one table while other programs use it.

    On PostgreSQL, all of them but new indexes are one transaction. It waits ``LOCK_TIMEOUT`` seconds for the table. If
    it does not get the table, it lets other programs go first, and tries again with a longer wait, for ``PATIENCE``
    seconds. It holds no lock on another table, so it cannot be part of a deadlock. Indexes are built afterwards and
    concurrently.

    Columns and indexes that are there already are left out. So if ``migrate`` was interrupted, run it again. A
    migration with this operation has ``atomic = False``. ``makemigrations`` writes both.
    """

    serialization_expand_args = ["operations"]

    def __init__(self, model_name: str, operations: Sequence[Operation]) -> None:
        self.model_name = model_name
        self.operations = list(operations)

    @property
    def reversible(self) -> bool:  # type: ignore[override]
        """Whether all operations can be reversed."""
        return all(operation.reversible for operation in self.operations)

    def state_forwards(self, app_label: str, state: ProjectState) -> None:
        """Change the state as the operations do."""
        for operation in self.operations:
            operation.state_forwards(app_label, state)

    def database_forwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        """Apply the operations."""
        steps = list(self._steps(app_label, from_state))
        self._apply(app_label, schema_editor, steps, forwards=True)

    def database_backwards(
        self, app_label: str, schema_editor: BaseDatabaseSchemaEditor, from_state: ProjectState, to_state: ProjectState
    ) -> None:
        """Reverse the operations; Django passes the state before them as ``to_state``."""
        steps = [(operation, after, before) for operation, before, after in self._steps(app_label, to_state)]
        self._apply(app_label, schema_editor, steps[::-1], forwards=False)

    def describe(self) -> str:
        """Return a description for people."""
        return f"Alter the table of {self.model_name} while it is in use"

    @property
    def migration_name_fragment(self) -> str:
        """A part of the migration's name."""
        return f"{self.model_name.lower()}_in_use"

    def _steps(self, app_label: str, state: ProjectState) -> Iterator[Step]:
        for operation in self.operations:
            after = state.clone()
            operation.state_forwards(app_label, after)
            yield operation, state, after
            state = after

    def _apply(self, app_label: str, editor: BaseDatabaseSchemaEditor, steps: list[Step], *, forwards: bool) -> None:
        connection = editor.connection
        model = steps[-1][2].apps.get_model(app_label, self.model_name)
        if not self.allow_migrate_model(connection.alias, model):
            return
        concurrently = _builds_concurrently(editor, model)
        later = [each for each, _, _ in steps if concurrently and forwards and isinstance(each, AddIndex)]

        def alter(wait: float) -> None:
            _lock(editor, model, wait)
            for operation, before, after in steps:
                adds = isinstance(operation, AddField | AddIndex) == forwards
                holder = (after if adds else before).apps.get_model(app_label, self.model_name)
                if operation in later or _is_done(editor, holder, operation, adds=adds):
                    continue
                move = operation.database_forwards if forwards else operation.database_backwards
                move(app_label, editor, before, after)

        _patiently(editor, model, alter)
        for addition in later:
            _build(editor, model, addition.index)


def _builds_concurrently(editor: BaseDatabaseSchemaEditor, model: type[Model]) -> bool:
    """Return whether indexes can be built while programs write: not in a transaction, nor on a partitioned table."""
    connection = editor.connection
    if editor.collect_sql or connection.in_atomic_block or not capabilities_of(connection).builds_concurrently:
        return False
    kind = "SELECT relkind FROM pg_class WHERE oid = to_regclass(%s)"
    return fetch_all(connection, kind, [_table(editor, model)]) == [("r",)]


def _table(editor: BaseDatabaseSchemaEditor, model: type[Model]) -> str:
    return editor.quote_name(model._meta.db_table)


def _lock(editor: BaseDatabaseSchemaEditor, model: type[Model], wait: float) -> None:
    """Take the table within ``wait`` seconds; do nothing on databases where changes of tables are no transaction."""
    if capabilities_of(editor.connection).builds_concurrently and not editor.collect_sql:
        table, n = _table(editor, model), int(wait * 1000)
        editor.execute(f"SET LOCAL lock_timeout = {n}", params=None)
        editor.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE", params=None)


def _is_done(editor: BaseDatabaseSchemaEditor, model: type[Model], operation: Operation, *, adds: bool) -> bool:
    """Return whether a column or an index is as the operation leaves it, from a migration that was interrupted.

    ``model``: the model while it has the column.
    """
    if editor.collect_sql or not isinstance(operation, AddField | RemoveField | AddIndex | RemoveIndex):
        return False
    connection, table = editor.connection, model._meta.db_table
    if isinstance(operation, AddField | RemoveField):
        column = field_of(model, operation.name).column
        return (column in columns_of(connection, table)) == adds
    with connection.cursor() as cursor:
        constraints = set(connection.introspection.get_constraints(cursor, table))
    name = operation.index.name if isinstance(operation, AddIndex) else operation.name
    return (name in constraints) == adds


def _build(editor: BaseDatabaseSchemaEditor, model: type[Model], index: Index) -> None:
    """Build an index concurrently, unless it is there; one whose building was interrupted is dropped first."""
    find = (
        "SELECT indisvalid FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid "
        "WHERE indrelid = to_regclass(%s) AND relname = %s"
    )

    def build(_wait: float) -> None:
        found = fetch_all(editor.connection, find, [_table(editor, model), index.name])
        if found == [(False,)]:
            editor.remove_index(model, index, concurrently=True)  # type: ignore[call-arg]
        if found != [(True,)]:
            editor.add_index(model, index, concurrently=True)  # type: ignore[call-arg]

    _patiently(editor, model, build, in_transaction=False)


def _patiently(
    editor: BaseDatabaseSchemaEditor, model: type[Model], alter: Callable[[float], None], *, in_transaction: bool = True
) -> None:
    """Call ``alter`` with the seconds to wait for locks, until no other transaction is in its way."""
    connection, deferred = editor.connection, len(editor.deferred_sql)
    began = reported = monotonic()
    wait = LOCK_TIMEOUT
    while True:
        try:
            if in_transaction and connection.features.can_rollback_ddl:
                with transaction.atomic(using=connection.alias):
                    alter(wait)
            else:
                alter(wait)
        except OperationalError as error:
            if connection.in_atomic_block or not (is_lock_timeout(error) or is_retryable(error)):
                raise
            del editor.deferred_sql[deferred:]
            now, table = monotonic(), model._meta.db_table
            if now - began > PATIENCE:
                raise CommandError(
                    f"Other transactions have held locks on the table {table} for {PATIENCE:.0f} s, so it was not "
                    "altered. manage.py stator doctor names long transactions. End them, then migrate again."
                ) from error
            if now - reported > REPORT_INTERVAL:
                logger.warning("stator.waits_for_table", extra={"table": table, "seconds": round(now - began)})
                reported = now
            sleep(uniform(0.1, 2 * LOCK_TIMEOUT))
            wait = min(2 * wait, MAX_LOCK_TIMEOUT)
        else:
            return
