"""Tables divided by time, for tests: converted as a migration does it, with partitions of the past."""

from contextlib import contextmanager
from datetime import UTC, datetime

from django.apps import apps
from django.db import connection, connections
from django.db.migrations.state import ProjectState

from stator.migration_operations import PartitionByTime
from stator.partitions.tables import read
from stator.partitions.upkeep import creation


def convert(label, period="month", *, backwards=False, atomic=False):
    operation, state = PartitionByTime(label, period), ProjectState()
    with connection.schema_editor(atomic=atomic) as editor:
        method = operation.database_backwards if backwards else operation.database_forwards
        method("testapp", editor, state, state)


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
    """The partitions of a model's table."""
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
