"""Databases that go away under load: a server that crashes, connections that are cut. Workers stay and go on."""

import random
import subprocess
import sys
from threading import Event as Flag
from time import monotonic

import psutil
import pytest
from django.db import connection

from project.postgres import DATABASE, Server
from tests.faults.events import Kind
from tests.faults.fleet import logged
from tests.processes import environment_for_subprocess
from tests.testapp.faults import Effect, Job, ThreadJob

pytestmark = [pytest.mark.fault, pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]

RESUMED_WITHIN = 5.0
MODELS = pytest.mark.parametrize("model", [Job, ThreadJob], ids=["async", "thread"])


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server that this test alone uses."""
    with Server(tmp_path_factory.mktemp("server"), options={"shared_buffers": "32MB"}) as server:
        server.create_database(DATABASE)
        environment = {**environment_for_subprocess(), **variables_for(server)}
        subprocess.run([sys.executable, "-m", "django", "migrate", "-v0"], env=environment, check=True)
        yield server


@pytest.fixture
def own(server, transactional_db, monkeypatch):
    """Has the default database on that server, with empty tables; gives the variables that send workers there."""
    host, port = server.url().split("@")[1].split("/")[0].split(":")
    connection.close()
    for name, value in {"NAME": DATABASE, "USER": "postgres", "HOST": host, "PORT": port}.items():
        monkeypatch.setitem(connection.settings_dict, name, value)
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE testapp_job, testapp_threadjob, testapp_event, testapp_effect CASCADE")
    yield variables_for(server)
    connection.close()


def variables_for(server):
    return {"DATABASE_URL": server.url(), "TEST_DATABASE_DEFAULT": "", "TEST_DATABASE_OTHER": ""}


def crash(server):
    """Crash the server and start it; its time when it answered again."""
    server.restart("immediate")
    connection.close()
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        return cursor.fetchone()[0]


def first_claim(watched, model, moment):
    """When something was claimed after a moment."""
    history = watched.history(model)
    found = zip(history.events, history.kinds(), strict=True)
    return next((event.at for event, kind in found if kind is Kind.CLAIM and event.at > moment), None)


@MODELS
def test_work_resumes_when_the_server_has_crashed(own, watch, fleet, server, thorough, model):
    crashes = 10 if thorough else 3
    watched = watch(model)
    workers = fleet(model._meta.label, STATOR_CONCURRENCY=6, STATOR_MAX_CRASHES=1000, **own)
    started = [workers.start() for _ in range(3)]
    waits = []

    for _ in range(crashes):
        # So many that there is always something to claim that nobody held at the time of the crash.
        model.objects.bulk_create(model(seconds=random.uniform(0.05, 0.4)) for _ in range(150))
        before = Effect.objects.count()
        workers.until(lambda before=before: Effect.objects.count() > before + 10)
        # A worker that finds no database when it starts says so and ends.
        workers.until(lambda: all(workers.starts(worker).exists() for worker in started))
        up = crash(server)
        waits.append((workers.until(lambda up=up: first_claim(watched, model, up)) - up).total_seconds())
    workers.until(lambda: not model.objects.exclude(state="done").exists(), 180)
    workers.stop()

    print(f"{crashes} crashes; work went on after {', '.join(f'{wait:.1f}' for wait in waits)} s")
    assert max(waits) <= RESUMED_WITHIN
    assert model.objects.filter(state="done").count() == 150 * crashes
    assert all(logged(worker, "stator.database_unreachable") for worker in started)
    watched.judge(max_crashes=1000)


def test_processes_that_die_while_the_database_is_away_are_replaced_when_it_is_back(own, watch, fleet, server):
    watched = watch(Job)
    Job.objects.bulk_create(Job(seconds=60) for _ in range(8))
    workers = fleet("testapp.Job", STATOR_CONCURRENCY=4, STATOR_MAX_CRASHES=1000, **own)
    supervisor = workers.start("--processes", "2")
    workers.until(lambda: workers.starts(supervisor).count() == 8)
    connection.close()
    server.stop("immediate")
    for process in psutil.Process(supervisor.pid).children():
        process.kill()
    workers.until(lambda: 75 in {died["exit_code"] for died in logged(supervisor, "stator.worker_died")})

    server.start()
    Job.objects.update(seconds=0)

    workers.until(lambda: not Job.objects.exclude(state="done").exists(), 120)
    workers.stop()
    watched.judge(max_crashes=1000)


@MODELS
def test_work_goes_on_while_connections_are_cut(watch, fleet, thorough, model):
    cut_for = 30.0 if thorough else 5.0
    watched = watch(model)
    model.objects.bulk_create(model(seconds=random.uniform(0.0, 0.2)) for _ in range(4000 if thorough else 600))
    workers = fleet(model._meta.label, STATOR_CONCURRENCY=6, STATOR_THREADS=6, STATOR_MAX_CRASHES=1000)
    for _ in range(2):
        workers.start()
    workers.until(lambda: Effect.objects.exists())
    before, counts, end = moved(model), [], monotonic() + cut_for

    while monotonic() < end:
        counts.append(cut_connections())
        Flag().wait(0.2)

    progress = moved(model) - before
    workers.until(lambda: not model.objects.exclude(state="done").exists(), 180)
    workers.stop()
    print(f"{sum(counts)} connections were cut, up to {max(counts)} at a time; meanwhile {progress} moves")
    assert progress > 0
    # Of each worker: the main thread, three for statements, the heartbeat, the listener, one or six for handlers.
    assert max(counts) <= 2 * 12
    watched.judge(max_crashes=1000)


def moved(model):
    return sum(model.objects.values_list("state_version", flat=True))


def cut_connections():
    """End every connection to this database but ours; how many there were."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        return cursor.fetchone()[0]
