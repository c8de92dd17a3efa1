"""Whether a database can be worked in is known before anything is claimed."""

import gc

import pytest
from django.db import InterfaceError, OperationalError, ProgrammingError, connection
from django.test.utils import isolate_apps

from stator.extensions.problems.commands.doctor.tables import usable
from stator.models import StatorModel
from stator.rows.problem import ERROR
from stator.rows.state_column import StateField
from stator.worker import startup
from stator.worker.startup import OWN, YOUNGEST, Unusable, check_database, collect_rarely, lacks_in
from tests.sizes import PATIENCE
from tests.testapp.models import Line, LineGraph

pytestmark = pytest.mark.django_db


def refused(*models, alias=None):
    with pytest.raises(Unusable) as caught:
        check_database(list(models), alias)
    text = str(caught.value)
    assert "\n" not in text
    return text


def drop(statement):
    if not connection.features.can_rollback_ddl:
        pytest.skip("this database does not undo changes of tables, and later tests need them")
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

    whole = "database 'default' has no table testapp_unmigrated of testapp.Unmigrated; run manage.py migrate"
    assert refused(Unmigrated) == whole
    # Others can be served.
    check_database([Line, Unmigrated])
    assert lacks_in([Line, Unmigrated]) == {Unmigrated: whole}


@pytest.fixture
def reader():
    drop("CREATE ROLE reader")
    drop("GRANT USAGE ON SCHEMA public TO reader")
    drop("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")


@pytest.mark.postgresql
def test_missing_privileges_are_named_with_the_grant(reader):
    drop("SET ROLE reader")
    assert refused(Line) == (
        'role "reader" lacks UPDATE on table "testapp_line" in database \'default\'; '
        'GRANT UPDATE ON "testapp_line" TO "reader"'
    )
    finding, _ = usable("default", [Line])
    assert (finding.level, finding.remedy) == (ERROR, 'GRANT UPDATE ON "testapp_line" TO "reader"')
    drop("RESET ROLE")
    drop("GRANT UPDATE (state, state_claim) ON testapp_line TO reader")
    drop("SET ROLE reader")
    assert refused(Line).endswith('; GRANT INSERT, UPDATE, DELETE ON "stator_worker" TO "reader"')


@pytest.mark.postgresql
def test_privileges_that_workers_need_are_enough(reader):
    drop("GRANT UPDATE ON testapp_line TO reader")
    for model, needed in OWN.items():
        drop(f"GRANT {', '.join(needed)} ON {model._meta.db_table} TO reader")
    drop("SET ROLE reader")
    check_database([Line])


def test_database_that_cannot_be_reached_is_named_without_secrets(monkeypatch):
    def down(*args, **kwargs):
        raise OperationalError(
            'connection to "postgresql://shop:hunter2@db/x" failed:\nserver is gone\n\tIs it running?'
        )

    monkeypatch.setattr(connection, "cursor", down)
    monkeypatch.setattr(startup, "DELAYS", [0.01, 0.01])
    text = refused(Line)
    assert text == (
        "database 'default' cannot be used: connection to \"postgresql://shop:***@db/x\" failed: server is gone "
        "Is it running?; check DATABASES['default']"
    )


@pytest.mark.parametrize("kind", [OperationalError, InterfaceError])
def test_database_that_is_away_for_a_moment_is_usable(monkeypatch, kind):
    looks = []

    def away_at_first(*args):
        looks.append(args)
        if len(looks) < 3:
            raise kind("server closed the connection unexpectedly")
        return {}

    monkeypatch.setattr(startup, "_check", away_at_first)
    # The last pause is not taken; its length is the time that the looks may take.
    monkeypatch.setattr(startup, "DELAYS", [0.01, 0.01, PATIENCE])
    check_database([Line])
    assert len(looks) == 3


def test_mistake_that_waiting_does_not_mend_is_told_at_once(monkeypatch):
    looks = []

    def look(*args):
        looks.append(args)
        raise ProgrammingError("permission denied for table testapp_line")

    monkeypatch.setattr(startup, "_check", look)
    assert "permission denied for table testapp_line" in refused(Line)
    assert len(looks) == 1


def test_garbage_collector_is_made_to_look_less_often_and_never_more():
    usual = gc.get_threshold()
    try:
        for before, after in ((700, YOUNGEST), (YOUNGEST + 1, YOUNGEST + 1), (0, 0)):
            gc.set_threshold(before, *usual[1:])
            collect_rarely()
            assert gc.get_threshold()[0] == after
    finally:
        gc.set_threshold(*usual)
