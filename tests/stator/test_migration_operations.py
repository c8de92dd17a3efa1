"""Operations of migrations on tables: storage parameters."""

import pytest
from django.apps import apps
from django.db import connection
from django.db.migrations.state import ProjectState
from django.db.migrations.writer import OperationWriter

from stator.migration_operations import StorageParameters
from tests.testapp.power import Site

pytestmark = pytest.mark.django_db
on_postgresql = pytest.mark.postgresql


def migrate(operation, backwards=False):
    state = ProjectState.from_apps(apps)
    with connection.schema_editor() as editor:
        method = operation.database_backwards if backwards else operation.database_forwards
        method("testapp", editor, state, state)


def sql(statement, *params):
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return cursor.fetchall() if cursor.description else None


def storage(name=Site._meta.db_table):
    rows = sql("SELECT unnest(coalesce(reloptions, '{}')) FROM pg_class WHERE relname = %s", name)
    return {text for (text,) in rows}


@on_postgresql
def test_storage_parameters_are_set_and_put_back():
    both = StorageParameters("Site", {"fillfactor": 50, "autovacuum_enabled": True, "toast.autovacuum_enabled": False})
    migrate(both)
    assert storage() == {"fillfactor=50", "autovacuum_enabled=true"}
    migrate(StorageParameters("Site", {"fillfactor": 70, "autovacuum_enabled": None}))
    assert storage() == {"fillfactor=70"}
    migrate(both, backwards=True)
    assert storage() == set()


@on_postgresql
def test_storage_parameters_of_the_index_of_the_key():
    key = f"{Site._meta.db_table}_pkey"
    both = StorageParameters("Site", {"fillfactor": 60}, key={"fillfactor": 50})
    migrate(both)
    assert (storage(), storage(key)) == ({"fillfactor=60"}, {"fillfactor=50"})
    migrate(StorageParameters("Site", {}, key={"fillfactor": None}))
    assert (storage(), storage(key)) == ({"fillfactor=60"}, set())
    migrate(both)
    migrate(both, backwards=True)
    assert (storage(), storage(key)) == (set(), set())


def test_storage_parameters_are_written_into_a_migration():
    operation = StorageParameters("Site", {"fillfactor": 50, "autovacuum_enabled": None}, key={"fillfactor": 60})
    text, imports = OperationWriter(operation, indentation=0).serialize()
    given = {}
    exec("\n".join([*imports, f"operation = {text.rstrip(',')}"]), given)
    assert given["operation"].deconstruct() == operation.deconstruct()
    assert operation.describe() == "Set fillfactor, autovacuum_enabled of the table of Site"


def test_storage_parameters_concern_no_other_database(django_assert_max_num_queries):
    if connection.vendor == "postgresql":
        pytest.skip("for the others")
    state, operation = ProjectState.from_apps(apps), StorageParameters("Site", {"fillfactor": 50}, {"fillfactor": 50})
    with django_assert_max_num_queries(0):
        operation.database_forwards("testapp", connection.schema_editor(), state, state)
        operation.database_backwards("testapp", connection.schema_editor(), state, state)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "give at least one parameter"),
        ({"fillfactor": "50"}, "'fillfactor': '50' is not a name with a number"),
        ({"fillfactor = 50) --": 1}, "is not a name with a number"),
    ],
)
def test_storage_parameters_without_sense_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        StorageParameters("Site", given)
