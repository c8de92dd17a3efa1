"""Whether a database can be worked in is known before anything is claimed."""

import pytest
from django.db import OperationalError, connection, connections
from django.test.utils import isolate_apps

from stator.fields import StateField
from stator.models import StatorModel
from stator.startup import Unusable, check_database
from tests.testapp.models import Line, LineGraph

pytestmark = pytest.mark.django_db


def refused(*models, alias=None):
    with pytest.raises(Unusable) as caught:
        check_database(list(models), alias)
    text = str(caught.value)
    assert "\n" not in text
    return text


def drop(statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)


def test_migrated_database_is_usable():
    check_database(StatorModel.subclasses)


def test_missing_table_is_named_with_the_remedy():
    with isolate_apps("tests.testapp"):

        class Unmigrated(StatorModel):
            state = StateField(LineGraph)

            class Meta:
                app_label = "testapp"

    assert refused(Unmigrated) == "database 'default' has no table testapp_unmigrated; run manage.py migrate"


def test_missing_columns_are_named_with_the_remedy():
    with isolate_apps("tests.testapp"):

        class HalfMigrated(StatorModel):
            state = StateField(LineGraph)

            class Meta:
                app_label = "testapp"
                db_table = "testapp_author"

    text = refused(HalfMigrated)
    assert text.startswith("table testapp_author lacks state, state_attempted, state_attempts, state_changed")
    assert text.endswith("; run manage.py makemigrations and migrate")


@pytest.mark.parametrize("table", ["stator_stats", "stator_report", "stator_history", "stator_depth", "stator_limit"])
def test_missing_table_of_the_framework_is_named(table):
    drop(f"DROP TABLE {table}")
    assert refused(Line) == f"database 'default' has no table {table}; run manage.py migrate"


def test_database_that_cannot_be_reached_is_named_without_secrets(monkeypatch):
    def down(*args, **kwargs):
        raise OperationalError(
            'connection to "postgresql://shop:hunter2@db/x" failed:\nserver is gone\n\tIs it running?'
        )

    monkeypatch.setattr(connection, "cursor", down)
    text = refused(Line)
    assert text == (
        "database 'default' cannot be used: connection to \"postgresql://shop:***@db/x\" failed: server is gone "
        "Is it running?; check DATABASES['default']"
    )


def test_only_databases_that_the_models_use_are_looked_at(monkeypatch):
    monkeypatch.setattr(connections["other"], "cursor", pytest.fail)
    check_database([Line])
