"""Columns and tables of the project's own that are missing: when a worker starts, and while it runs (F27)."""

from contextlib import contextmanager

import pytest
from django.db import connection

from tests.faults.fleet import Fleet, logged
from tests.processes import wait_until
from tests.testapp.faults import Job, ThreadJob

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

LINE = "table testapp_threadjob of testapp.ThreadJob in database 'default' lacks column gate; run manage.py migrate"


def execute(statement):
    with connection.cursor() as cursor:
        cursor.execute(statement)


@contextmanager
def without_column():
    """Meanwhile the table of thread jobs has no column "gate"; renamed and not dropped, so that it can be as it was."""
    execute("ALTER TABLE testapp_threadjob RENAME COLUMN gate TO away")
    try:
        yield
    finally:
        execute("ALTER TABLE testapp_threadjob RENAME COLUMN away TO gate")


def put_thread_jobs(table="testapp_threadjob"):
    """Insert three rows as a program does that has other names for the table or its column."""
    text = "gate" if table == "away" else "away"
    for _ in range(3):
        execute(
            f"INSERT INTO {table} (state, state_ready, state_changed, state_attempts, state_failures, state_crashes, "
            f"state_version, seconds, {text}) VALUES ('fresh', true, CURRENT_TIMESTAMP, 0, 0, 0, 0, 0, '')"
        )


def count(model, state):
    return model.stator.filter(state=state).count()


@pytest.fixture
def fleet_of_two(transactional_db):
    """Workers for two models, of which one will lack something."""
    with Fleet("testapp.Job", "testapp.ThreadJob", STATOR_LEASE=60) as workers:
        yield workers


def started(workers):
    worker = workers.start()
    workers.until(lambda: logged(worker, "stator.ready"))
    return worker


def test_worker_without_another_model_does_not_start(worker_process):
    with without_column(), worker_process("testapp.ThreadJob", "--processes", "2") as worker:
        assert worker.wait() == 75, worker.output()
        assert set(worker.output().splitlines()) == {f"runstator: {LINE}"}


def test_worker_that_starts_without_a_column_of_one_model_serves_the_other(fleet_of_two):
    for _ in range(3):
        Job.objects.create()
    with without_column():
        put_thread_jobs()
        worker = started(fleet_of_two)
        [event] = logged(worker, "stator.model_left_out")
        assert (event["model"], event["database"], event["why"]) == ("testapp.threadjob", "default", LINE)
        fleet_of_two.until(lambda: count(Job, "done") == 3)
        assert count(ThreadJob, "fresh") == 3
    fleet_of_two.until(lambda: count(ThreadJob, "done") == 3)
    fleet_of_two.stop()
    assert "Traceback" not in worker.output()


def test_model_whose_column_goes_is_left_out_until_it_is_back(fleet_of_two):
    worker = started(fleet_of_two)
    with without_column():
        put_thread_jobs()
        [event] = fleet_of_two.until(lambda: logged(worker, "stator.model_left_out"))
        assert event["why"] == LINE
        for _ in range(3):
            Job.objects.create()
        fleet_of_two.until(lambda: count(Job, "done") == 3)
    fleet_of_two.until(lambda: logged(worker, "stator.model_back"))
    fleet_of_two.until(lambda: count(ThreadJob, "done") == 3)
    fleet_of_two.stop()
    assert "Traceback" not in worker.output()
    assert not logged(worker, "stator.database_unreachable")
    assert set(ThreadJob.objects.values_list("state_failures", "state_crashes")) == {(0, 0)}


def test_attempts_under_way_when_the_column_goes_are_not_failed(fleet_of_two, gate):
    jobs = [ThreadJob.objects.create(gate=str(gate)) for _ in range(3)]
    worker = started(fleet_of_two)
    fleet_of_two.until(lambda: ThreadJob.stator.filter(state_claim__isnull=False).count() == 3)
    with without_column():
        gate.touch()
        fleet_of_two.until(lambda: count(ThreadJob, "halfway") == 3)
        fleet_of_two.until(lambda: logged(worker, "stator.model_left_out"))
    fleet_of_two.until(lambda: count(ThreadJob, "done") == len(jobs))
    fleet_of_two.stop()
    assert not logged(worker, "stator.attempt_failed")
    assert not logged(worker, "stator.lease_lost")


def test_worker_ends_when_no_model_is_left(worker_process):
    with worker_process("testapp.ThreadJob", "--processes", "2") as worker:
        wait_until(lambda: worker.output().count("stator.ready") == 2, message=worker.output)
        with without_column():
            put_thread_jobs()
            assert worker.wait() == 75, worker.output()
        assert f"runstator: {LINE}" in worker.output().splitlines()
        assert "Traceback" not in worker.output()
