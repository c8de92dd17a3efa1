"""Divided tables, for tests: converted as a migration does it, by time with partitions of the past."""

from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import cache

import pytest
from django.apps import apps
from django.db import connection, connections, migrations, models
from django.db.migrations.state import ProjectState

from stator.extensions.partitions.tables import read
from stator.extensions.partitions.upkeep import creation
from stator.migration_operations import PartitionByTime


def convert(label, period="month", *, backwards=False, atomic=False):
    apply(PartitionByTime(label, period), ProjectState(), backwards=backwards, atomic=atomic)


def apply(operation, state, *, backwards=False, atomic=False):
    with connection.schema_editor(atomic=atomic) as editor:
        method = operation.database_backwards if backwards else operation.database_forwards
        method("testapp", editor, state, state)


@cache
def whole_project():
    """What migrations know of all apps; made once, for that takes a second."""
    state = ProjectState.from_apps(apps)
    # Without its graph, which refuses values that it lacks.
    *_, given = apps.get_model("testapp.Mail")._meta.get_field("status").deconstruct()
    state.models["testapp", "mail"].fields["status"] = models.IntegerField(**given)
    return state


def migrate(operation, *, backwards=False):
    method = operation.database_backwards if backwards else operation.database_forwards
    # Not entered: SQLite's would refuse to work there.
    method("testapp", connection.schema_editor(), whole_project(), whole_project())


def while_divided(*operations):
    """A fixture for all tests of a module: tables are divided by these operations."""

    @pytest.fixture(scope="module", autouse=True)
    def partitions(django_db_setup, django_db_blocker):
        with ExitStack() as stack:
            with django_db_blocker.unblock():
                stack.enter_context(distributed(*operations))
            yield
            with django_db_blocker.unblock():
                stack.close()

    return partitions


@contextmanager
def distributed(*operations):
    """Tables are divided by these operations, and ordinary again afterwards."""
    for operation in operations:
        apply(operation, whole_project())
    try:
        yield
    finally:
        for operation in operations:
            apply(operation, whole_project(), backwards=True)


@contextmanager
def divided(label, period="month", *past):
    """The table of a model in partitions, those that began at these moments among them; ordinary again afterwards."""
    model = apps.get_model(label)
    convert(label, period)
    try:
        if past:
            table = read(model, "default")
            [first] = [each for each in table.partitions if each.upper and not each.lower]
            execute(f"DROP TABLE {first.name}")
            for bounds in zip(past, past[1:], strict=False):
                execute(creation(connection, table.place, bounds))
        yield
    finally:
        convert(label, period, backwards=True)


def names(model):
    return {each.name for each in read(model, "default").partitions}


def execute(statement, *params):
    with connection.cursor() as cursor:
        cursor.execute(statement, params or None)
        return cursor.fetchall() if cursor.description else None


def day(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@contextmanager
def other_session():
    """A cursor of another session, in a transaction that ends with the block."""
    other = connections.create_connection("default")
    try:
        with other.cursor() as cursor:
            cursor.execute("BEGIN")
            yield cursor
            cursor.execute("COMMIT")
    finally:
        other.close()


def shape(table, connection=connection):
    """The columns of a table, and its constraints and indexes by name, as Django sees them."""
    with connection.cursor() as cursor:
        columns = connection.introspection.get_table_description(cursor, table)
        constraints = connection.introspection.get_constraints(cursor, table)
    return columns, {
        name: (each["columns"], each["unique"], each["primary_key"], each["foreign_key"])
        for name, each in constraints.items()
    }


PARCEL = "crates_parcel"
SHARD = models.SmallIntegerField(blank=True, editable=False, db_default=0)


class Tables:
    def __init__(self, alias="default"):
        self.alias = alias
        self.states = [ProjectState()]
        self.done = []

    @property
    def connection(self):
        # Each thread has its own.
        return connections[self.alias]

    def migrate(self, *operations, atomic=False):
        for operation in operations:
            before, after = self.states[-1], self.states[-1].clone()
            operation.state_forwards("crates", after)
            with self.connection.schema_editor(atomic=atomic) as editor:
                operation.database_forwards("crates", editor, before, after)
            self.states.append(after)
            self.done.append(operation)

    def back(self):
        after, operation = self.states.pop(), self.done.pop()
        with self.connection.schema_editor(atomic=False) as editor:
            operation.database_backwards("crates", editor, after, self.states[-1])

    def model(self, name="Parcel"):
        return self.states[-1].apps.get_model("crates", name)

    def rows(self):
        return self.model().objects.using(self.alias)

    def add(self, count=1, **values):
        return self.rows().bulk_create([self.model()(**values) for _ in range(count)])


def parcel(**fields):
    key = fields.pop("id", models.BigAutoField(primary_key=True))
    fields = {"id": key, "label": models.CharField(max_length=20, default="", db_index=True), **fields}
    return migrations.CreateModel("Parcel", list(fields.items()))
