"""No worker writes to the table of a model in shadow, by the database's own account."""

import pytest
from django.db import connection

from stator.models import ShadowLine
from tests.processes import wait_until
from tests.stator.making import ago, put, raw
from tests.stator.running import work
from tests.testapp.shadowed import Flyer

pytestmark = pytest.mark.django_db(transaction=True)

TABLE = Flyer._meta.db_table
EVENTS = ("INSERT", "UPDATE", "DELETE")


def several():
    for state, seconds in [("queued", 90), ("sending", 7200), ("sent", 7200), ("returned", 0), ("void", 0)] * 20:
        put(Flyer, state=state, text="", state_changed=ago(seconds))


def execute(*statements):
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


@pytest.mark.postgresql
def test_server_counts_no_write_by_workers_and_one_for_each_of_the_old_code():

    def counted():
        connection.close()
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_stat_clear_snapshot()")
            cursor.execute(
                "SELECT n_tup_ins, n_tup_upd, n_tup_hot_upd, n_tup_del FROM pg_stat_user_tables WHERE relname = %s",
                [TABLE],
            )
            return cursor.fetchone()

    before = counted()[0]
    several()
    # The counts of the connection that has made the rows arrive when it has ended.
    wait_until(lambda: counted()[0] >= before + 100)
    inserted, updated, _, deleted = counted()

    work(Flyer)
    assert Flyer.objects.filter(state="queued").update(state="sent") == 20
    work(Flyer)

    assert ShadowLine.objects.filter(moved_to="sent").count() == 20
    wait_until(lambda: counted()[1] >= updated + 20)
    assert counted()[:2] == (inserted, updated + 20)
    assert counted()[3] == deleted


@pytest.fixture
def noted():
    """Triggers that note each write to the table."""
    execute("CREATE TABLE noted_writes (what varchar(10))")
    begin = "BEGIN" if connection.vendor == "sqlite" else ""
    end = "; END" if connection.vendor == "sqlite" else ""
    execute(
        *(
            f"CREATE TRIGGER noted_{event} AFTER {event} ON {TABLE} FOR EACH ROW {begin} "
            f"INSERT INTO noted_writes VALUES ('{event}'){end}"
            for event in EVENTS
        )
    )
    yield
    execute(*(f"DROP TRIGGER noted_{event}" for event in EVENTS), "DROP TABLE noted_writes")


@pytest.mark.skipif(connection.vendor == "postgresql", reason="has counters")
def test_triggers_note_no_write_by_workers(request):
    several()
    request.getfixturevalue("noted")

    work(Flyer)
    assert Flyer.objects.filter(state="queued").update(state="sent") == 20
    work(Flyer)

    assert ShadowLine.objects.filter(moved_to="sent").count() == 20
    with connection.cursor() as cursor:
        cursor.execute("SELECT what, COUNT(*) FROM noted_writes GROUP BY what")
        assert list(cursor.fetchall()) == [("UPDATE", 20)]
    assert raw(Flyer).count() == 100
