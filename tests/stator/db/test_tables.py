"""A table that lacks something is named in one line, with the remedy."""

import pytest
from django.db import OperationalError, connection, connections, models
from django.db.models.sql.compiler import SQLCompiler
from django.test.utils import isolate_apps

from stator.db.tables import lack_of, wrong_expression
from tests.testapp.explained import Errand
from tests.testapp.models import Line

pytestmark = pytest.mark.django_db(transaction=True)


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
