"""A table that lacks something is named in one line, with the remedy."""

import pytest
from django.db import OperationalError, connection, connections, models
from django.db.models.sql.compiler import SQLCompiler
from django.test.utils import isolate_apps

from stator.db.tables import lack_of, wrong_expression
from tests.testapp.explained import Errand
from tests.testapp.models import Line

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def family():
    """A model whose table is complete, with one of its parent's that is not."""
    with isolate_apps("tests.testapp"):

        class Parent(models.Model):
            colour = models.CharField(max_length=5)
            size = models.IntegerField(db_column="Size")

            class Meta:
                app_label = "testapp"
                db_table = "odd % parent"

        class Child(Parent):
            class Meta:
                app_label = "testapp"

        yield Parent, Child


@pytest.mark.sqlite
def test_columns_and_tables_of_a_parent_are_among_those_of_the_model(family):
    # On PostgreSQL, Django itself takes the percent sign for a placeholder.
    parent, child = family
    said = "database 'default' has no table testapp_child of testapp.Child; run manage.py migrate"
    assert lack_of(child, "default") == said
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE testapp_child (parent_ptr_id integer PRIMARY KEY)")
        try:
            assert lack_of(child, "default").startswith(
                "database 'default' has no table odd % parent of testapp.Parent"
            )
            cursor.execute('CREATE TABLE "odd % parent" (id integer PRIMARY KEY, size integer)')
            said = (
                "table odd % parent of testapp.Parent in database 'default' lacks column colour; run manage.py migrate"
            )
            assert lack_of(child, "default") == said
            cursor.execute('ALTER TABLE "odd % parent" ADD COLUMN colour varchar(5)')
            assert lack_of(child, "default") == ""
        finally:
            cursor.execute('DROP TABLE IF EXISTS "odd % parent"')
            cursor.execute("DROP TABLE testapp_child")


@pytest.mark.citus_lacks("tables in the schema public")
@pytest.mark.postgresql
def test_table_that_a_migration_has_locked_is_not_waited_for():
    with isolate_apps("tests.testapp"):

        class Locked(models.Model):
            class Meta:
                app_label = "testapp"
                db_table = '"public"."testapp_line"'

        other = connections.create_connection("default")
        try:
            other.set_autocommit(False)
            with other.cursor() as cursor:
                cursor.execute("LOCK TABLE testapp_line IN ACCESS EXCLUSIVE MODE")
            with connection.cursor() as cursor:
                cursor.execute("SET lock_timeout = '2s'")
            assert lack_of(Line, "default") == ""
            assert lack_of(Locked, "default") == ""
        finally:
            other.rollback()
            other.close()
            connection.close()


def test_outage_is_no_fault_of_an_expression(monkeypatch):
    wrong_expression.cache_clear()

    def away(*arguments, **options):
        raise OperationalError("no connection")

    with monkeypatch.context() as patched:
        patched.setattr(SQLCompiler, "as_sql", away)
        with pytest.raises(OperationalError):
            wrong_expression(Errand, "default")
    assert wrong_expression(Errand, "default") == ""
