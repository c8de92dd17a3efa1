"""A streaming standby that pages and metrics read: what is sent there, how far it is behind, and what if it is away."""

import re
import socket
from contextlib import ExitStack, contextmanager

import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.test import Client

from stator.overview import replica
from stator.testing import drain
from tasks.models import Queue, Task
from tests.faults.servers import database_on, has_replayed
from tests.processes import settings_module, wait_until
from tests.stator.admin.overviews import text_of
from tests.stator.admin.requests import LIST, move, page_of
from tests.stator.test_metrics import METRICS, TOKEN
from tests.testapp.faults import Job
from tests.testapp.operators import Parcel

pytestmark = [
    pytest.mark.fault,
    pytest.mark.postgresql,
    pytest.mark.django_db(transaction=True, databases=["default", "other"]),
]

OVERVIEW, TASKS = "/admin/stator/overview/", "/admin/tasks/task/"
SHOWN = (OVERVIEW, LIST, f"{LIST}?q=gate&condition=ready", TASKS, *(
    f"/admin/{name}/" for name in ("tasks/queue", "tasks/run", "tasks/schedule", "stator/history", "stator/report",
                                   "stator/worker", "stator/stats", "stator/pause")
))  # fmt: skip
# What a page does before it reads rows, by tables; the choices of a filter are those of the site.
OF_THE_SITE = ("auth_", "django_", "pg_current_wal_lsn", "pg_stat_activity", 'FROM "tasks_queue" ORDER BY')


@pytest.fixture
def client(own, server, standby, settings):
    """A superuser on pages that read the standby, which is up to date."""
    for model in (Parcel, Queue, User):
        model.objects.all().delete()
    client = Client()
    client.force_login(User.objects.create_superuser("ada"))
    Parcel.objects.create(address="the gate")
    Queue.objects.create(name="digging", actions_elsewhere=True).publish("dig")
    has_replayed(server, standby)
    settings.STATOR = {"READ_ALIAS": "other", "TOKEN": TOKEN}
    replica._latest.clear()
    with database_on("other", standby):
        yield client
    replica._latest.clear()


@contextmanager
def sent():
    """The statements that are sent by alias."""
    found = {"default": [], "other": []}

    def note(alias):
        def wrapper(execute, sql, *rest):
            found[alias].append(sql)
            return execute(sql, *rest)

        return wrapper

    with ExitStack() as stack:
        for alias in found:
            stack.enter_context(connections[alias].execute_wrapper(note(alias)))
        yield found


def of_rows(statements):
    """The statements on tables of models, without those of users and their sessions."""
    return [sql for sql in statements if " FROM " in sql and not any(name in sql for name in OF_THE_SITE)]


def scraped(client):
    return client.get(METRICS, headers={"Authorization": f"Bearer {TOKEN}"}).text


def test_overview_lists_and_metrics_are_read_from_the_standby(client):
    for url in SHOWN:
        with sent() as found:
            assert "replica &#x27;other&#x27;" in client.get(url).text
        assert of_rows(found["other"]), url
        assert of_rows(found["default"]) == [], url
    with sent() as found:
        text = scraped(client)
    assert 'stator_ready{model="testapp.parcel"} 1.0' in text
    assert re.search(r'stator_replica_lag_seconds\{database="default"\} \d', text)
    assert len(of_rows(found["other"])) > 10
    assert of_rows(found["default"]) == []


def test_moves_claims_and_pages_of_objects_never_ask_the_standby(client, standby):
    parcel, url = Parcel.objects.get(), page_of(Parcel.objects.get())
    with sent() as found:
        moved = move(client, parcel)
        assert moved.status_code == 302
        for path in (url, f"{url.removesuffix('change/')}stator/", page_of(Task.objects.get()).replace(LIST, TASKS)):
            assert client.get(path).status_code == 200
        Parcel.objects.create(address="the gate")
        drain(Parcel)
    assert Parcel.objects.get(pk=parcel.pk).state == "delivered"
    assert any("UPDATE" in sql for sql in found["default"])
    assert found["other"] == []


def test_worker_checks_and_commands_open_no_connection_to_the_replica(own, worker_process, tmp_path):
    Job.objects.all().delete()
    Job.objects.create()
    with socket.create_server(("127.0.0.1", 0)) as door:
        door.setblocking(False)
        elsewhere = {"HOST": "127.0.0.1", "PORT": str(door.getsockname()[1])}
        text = f"DATABASES['replica'] = {{**DATABASES['default'], **{elsewhere!r}}}\nSTATOR['READ_ALIAS'] = 'replica'"
        variables = {**own, **settings_module(tmp_path, text)}
        for command in (
            ("runstator", "testapp.Job", "--until-idle"), ("check", "--database", "default"), ("stator", "status"),
            ("stator", "retry", "testapp.Job", "--state", "done"), ("stator", "doctor"),
        ):  # fmt: skip
            name, *options = command
            with worker_process(*options, command=name, **variables) as process:
                assert process.wait() in (0, 1), process.output()
        with pytest.raises(BlockingIOError):
            door.accept()
    assert Job.objects.get().state == "done"


def is_paused():
    with connections["other"].cursor() as cursor:
        cursor.execute("SELECT pg_get_wal_replay_pause_state()")
        return cursor.fetchone()[0] == "paused"


def test_list_of_a_standby_that_is_behind_says_so_and_own_moves_are_seen_at_once(client, standby, monkeypatch):
    parcel = Parcel.objects.get()
    monkeypatch.setattr(replica, "MAX_LAG", 3600.0)
    with connections["other"].cursor() as cursor:
        cursor.execute("SELECT pg_wal_replay_pause()")
    wait_until(is_paused)
    try:
        page = text_of(client, move(client, parcel).url)
        assert "Read from the primary database, to show what you have just done." in page
        assert "delivered" in text_of(client, page_of(parcel))
        replica._latest.clear()
        assert re.search(r"Read from the replica 'other', \d+\.\d s behind\.", text_of(client, LIST))
        assert "stator-automatic" in client.get(LIST).text
        monkeypatch.setattr(replica, "MAX_LAG", 0.0)
        replica._latest.clear()
        assert "Read from the primary database: the replica 'other' is" in text_of(client, LIST)
        assert "stator-terminal" in client.get(LIST).text
        assert not scraped(client).count('stator_replica_lag_seconds{database="default"} 0.0')
    finally:
        with connections["other"].cursor() as cursor:
            cursor.execute("SELECT pg_wal_replay_resume()")


def test_pages_read_the_primary_while_the_standby_is_away_and_the_standby_when_it_is_back(client, standby):
    assert "Read from the replica" in text_of(client, LIST)
    standby.stop("immediate")
    replica._latest.clear()
    for url in (LIST, OVERVIEW):
        assert "Read from the primary database: the replica 'other' does not answer" in text_of(client, url)
    assert "parcel to the gate" in text_of(client, LIST)
    assert 'stator_ready{model="testapp.parcel"} 1.0' in scraped(client)
    standby.start()
    with database_on("other", standby):
        replica._latest.clear()
        assert "Read from the replica" in text_of(client, LIST)
