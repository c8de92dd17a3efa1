"""Tables that lack a column, and the errors of statements that name it."""

from contextlib import contextmanager

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import DatabaseError, connection


@contextmanager
def without(model, column):
    """Meanwhile the table of a model lacks a column."""
    rename = f"ALTER TABLE {model._meta.db_table} RENAME COLUMN {{}} TO {{}}"
    execute(rename.format(column, "away"))
    try:
        yield
    finally:
        execute(rename.format("away", column))


def execute(statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)


def error_of(statement="SELECT absent FROM testapp_line"):
    with pytest.raises(DatabaseError) as caught:
        execute(statement)
    return caught.value


async def run(function, *args, **kwargs):
    """In place of a database thread: in that of the test."""
    return await sync_to_async(function)(*args, **kwargs)


def wait_for(function, *args):
    return async_to_sync(function)(*args)
