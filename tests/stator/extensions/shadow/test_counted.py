"""No worker writes to the table of a model in shadow, by the database's own account."""

from contextlib import contextmanager

import pytest
from django.db import connection

from stator.models import History, ShadowLine, Stats
from tests.commanding import asked
from tests.faults.fleet import Fleet
from tests.processes import WorkerProcess, wait_until
from tests.stator.making import ago, put, raw
from tests.testapp.shadowed import Leaflet

pytestmark = [pytest.mark.django_db(transaction=True, databases=["default", "other"]), pytest.mark.postgresql]


@contextmanager
def counted_writes():
    """Yield what returns the numbers of rows that were inserted, updated and deleted since, as the server counts.

    Those of a connection arrive when it has ended.
    """
    connection.close()
    before = written()
    yield lambda: tuple(now - then for now, then in zip(written(), before, strict=True))


def written():
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute(
            "SELECT n_tup_ins, n_tup_upd, n_tup_del FROM pg_stat_user_tables WHERE relname = %s",
            [Leaflet._meta.db_table],
        )
        return tuple(cursor.fetchone())


def made(model, *kinds):
    """Rows in these states since so many seconds."""
    rows = [put(model, state=state, text="", state_changed=ago(seconds)) for state, seconds in kinds]
    # The server counts what a connection has written when that has ended.
    connection.close()
    return [row.pk for row in rows]


# What a program does that has never heard of workers: one row at a time, each committed.
OLD_SWEEP = """
from threading import Event
from django.db import connection
for pk, state in {moves}:
    with connection.cursor() as cursor:
        if state:
            cursor.execute("UPDATE {table} SET state = %s WHERE id = %s", [state, pk])
        else:
            cursor.execute("DELETE FROM {table} WHERE id = %s", [pk])
    Event().wait(0.02)
"""


def old_sweep(moves):
    """Run the old code to its end, in a process of its own."""
    code = OLD_SWEEP.format(moves=moves, table=Leaflet._meta.db_table)
    with WorkerProcess("--no-imports", "-c", code, command="shell") as process:
        assert process.wait() == 0, process.output()


def groups(data, name):
    return {(one["source"], one["act"], one["to"]): one["count"] for one in data[name]}


def test_a_worker_looks_on_beside_an_old_sweep_until_the_switch():
    with counted_writes() as since_before:
        queued = made(Leaflet, *[("queued", 90)] * 12)
        late = made(Leaflet, *[("sending", 7200)] * 3)
        sending = made(Leaflet, *[("sending", 5)] * 3)
        wait_until(lambda: since_before()[0] == 18)
    lines = ShadowLine.objects.filter(model_label="testapp.leaflet")
    fleet = Fleet("testapp.Leaflet", STATOR_SCHEDULE_INTERVAL=0.2)
    with fleet, counted_writes() as since:
        fleet.start("--shadow", "testapp.Leaflet")
        fleet.until(lambda: lines.count() == 18)
        moves = [(pk, "sent") for pk in queued[:6]] + [(queued[6], "returned"), (sending[0], "sent"), (sending[1], "")]
        old_sweep(moves)
        fleet.until(lambda: lines.exclude(ended=0).count() == len(moves))
        fleet.stop()

        wait_until(lambda: since()[1:] >= (8, 1))
        assert since() == (0, 8, 1)
        assert not History.objects.exists()
        assert not Stats.objects.filter(model_label="testapp.leaflet").exists()
        data = asked("stator", "shadow", "testapp.Leaflet")
        assert groups(data, "as_here") == {("queued", "handle_queued", "sent"): 6}
        assert groups(data, "elsewhere") == {("queued", "handle_queued", "returned"): 1}
        assert groups(data, "not_here") == {("sending", "", "sent"): 1, ("sending", "", ""): 1}
        assert groups(data, "not_there") == {
            ("queued", "handle_queued", ""): 5,
            ("sending", "times out", "queued"): 3,
            ("returned", "condition met", "void"): 1,
        }

        # Without the option, as the model says: workers have what is queued, and the old code the rest.
        fleet.start()
        fleet.until(lambda: not raw(Leaflet).filter(state="queued").exists())
        fleet.stop()
        assert raw(Leaflet).filter(pk__in=queued[7:], state="sent", state_version=1).count() == 5
        assert raw(Leaflet).filter(pk__in=late, state="sending", state_version=0).count() == 3
