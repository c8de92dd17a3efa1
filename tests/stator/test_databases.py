"""Two databases know nothing of each other, and a NOTIFY says a label and nothing else. Security rule S10."""

from contextlib import closing

import psycopg
import pytest
from django.db import connections

from stator.models import History, Report, Stats
from stator.rows import wakeup
from stator.runner import StatorRunner
from tests.sizes import PATIENCE
from tests.stator.making import put, raw
from tests.testapp.models import Line
from tests.testapp.operators import Parcel

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])
SECRET = "hunter2"


def work(model, database):
    StatorRunner([model], until_idle=True, database=database).run()


def listener(alias):
    """A session of its own in a database, as any of its users can open one, that hears all there is to hear."""
    given = connections[alias].get_connection_params()
    wanted = ("host", "port", "user", "password", "dbname")
    session = psycopg.connect(**{name: value for name, value in given.items() if name in wanted}, autocommit=True)
    session.execute(f"LISTEN {wakeup.CHANNEL}")
    return closing(session)


@pytest.mark.parametrize(("database", "elsewhere"), [("other", "default")])
def test_worker_of_one_database_leaves_the_rows_of_the_other_alone(database, elsewhere):
    put(Line, database)
    left = put(Line, elsewhere)
    work(Line, database)
    assert raw(Line, database).get().state == "last"
    found = raw(Line, elsewhere).get()
    assert (found.state, found.state_attempts, found.state_attempted) == ("first", 0, None)
    assert found.state_version == left.state_version
    assert not Stats.objects.using(elsewhere).exists()


def test_what_is_said_of_a_row_stays_in_its_database():
    failing = put(Parcel, "other", address=SECRET, orders="fail")
    put(Parcel, "default", orders="wait")
    work(Parcel, "other")
    raw(Parcel, "other").get(pk=failing.pk).transition_perform("sent", actor="ann", reason=SECRET)
    assert Report.objects.using("other").get(object_pk=str(failing.pk)).message == SECRET
    assert History.objects.using("other").get(kind="hand").reason == SECRET
    assert not Report.objects.using("default").exists()
    assert not History.objects.using("default").exists()


@pytest.mark.postgresql
def test_notification_says_a_label_in_the_database_of_the_row_and_nothing_else():
    wakeup._sent.clear()
    with listener("default") as here, listener("other") as there:
        Parcel.objects.create(address=SECRET)
        Line(name=SECRET).save(using="other")
        # Sent on the connections that have committed, so those come first.
        for session, alias in ((here, "default"), (there, "other")):
            with connections[alias].cursor() as cursor:
                cursor.execute("SELECT pg_notify(%s, 'the end')", [wakeup.CHANNEL])
            heard = []
            for notification in session.notifies(timeout=PATIENCE):
                heard.append(notification.payload)
                if heard[-1] == "the end":
                    break
            assert heard == [{"default": "testapp.parcel", "other": "testapp.line"}[alias], "the end"]
