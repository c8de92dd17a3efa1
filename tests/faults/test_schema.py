"""Columns and tables of the project's own that are missing: when a worker starts, and while it runs (F27)."""

from contextlib import contextmanager

import pytest

from tests.faults.fleet import Fleet, logged
from tests.faults.servers import execute
from tests.processes import wait_until
from tests.testapp.faults import Job, ThreadJob

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

LINE = "table testapp_threadjob of testapp.ThreadJob in database 'default' lacks column gate; run manage.py migrate"


@contextmanager
def without_column():
    """Meanwhile the table of thread jobs has no column "gate"; renamed and not dropped, so that it can be as it was."""
    execute("ALTER TABLE testapp_threadjob RENAME COLUMN gate TO away")
    try:
        yield
    finally:
        execute("ALTER TABLE testapp_threadjob RENAME COLUMN away TO gate")


def put_thread_jobs():
    """Insert three rows as a program does that has another name for the column."""
    for _ in range(3):
        execute(
            "INSERT INTO testapp_threadjob (state, state_ready, state_changed, state_attempts, state_failures, "
            "state_crashes, state_version, seconds, away) VALUES ('fresh', true, CURRENT_TIMESTAMP, 0, 0, 0, 0, 0, '')"
        )


def count(model, state):
    return model.stator.filter(state=state).count()


@pytest.fixture
def fleet_of_two(transactional_db):
    """Workers for two models, of which one will lack something."""
    with Fleet("testapp.Job", "testapp.ThreadJob", STATOR_LEASE=60) as workers:
        yield workers


def test_worker_without_another_model_does_not_start(worker_process):
    with without_column(), worker_process("testapp.ThreadJob", "--processes", "2") as worker:
        assert worker.wait() == 75, worker.output()
        assert set(worker.output().splitlines()) == {f"runstator: {LINE}"}


def test_model_that_lacks_a_column_is_left_out_until_it_is_there_and_no_attempt_of_it_fails(fleet_of_two, gate):
    """From the start of the worker; and again while its attempts are under way."""
    Job.objects.bulk_create(Job() for _ in range(3))
    with without_column():
        put_thread_jobs()
        worker = fleet_of_two.start()
        fleet_of_two.until(lambda: count(Job, "done") == 3)
        [event] = logged(worker, "stator.model_left_out")
        assert (event["model"], event["database"], event["why"]) == ("testapp.threadjob", "default", LINE)
        assert count(ThreadJob, "fresh") == 3
    fleet_of_two.until(lambda: count(ThreadJob, "done") == 3)

    under_way = [ThreadJob.objects.create(gate=str(gate)) for _ in range(3)]
    fleet_of_two.until(lambda: ThreadJob.stator.filter(state_claim__isnull=False).count() == len(under_way))
    with without_column():
        gate.touch()
        fleet_of_two.until(lambda: count(ThreadJob, "halfway") == len(under_way))
        put_thread_jobs()
        fleet_of_two.until(lambda: [event["why"] for event in logged(worker, "stator.model_left_out")] == [LINE] * 2)
        Job.objects.bulk_create(Job() for _ in range(3))
        fleet_of_two.until(lambda: count(Job, "done") == 6)
    fleet_of_two.until(lambda: len(logged(worker, "stator.model_back")) == 2)
    fleet_of_two.until(lambda: count(ThreadJob, "done") == 9)
    fleet_of_two.stop()
    assert "Traceback" not in worker.output()
    for loud in ("attempt_failed", "lease_lost", "database_unreachable"):
        assert not logged(worker, f"stator.{loud}")
    assert set(ThreadJob.objects.values_list("state_failures", "state_crashes")) == {(0, 0)}


def test_worker_ends_when_no_model_is_left(worker_process):
    with worker_process("testapp.ThreadJob", "--processes", "2") as worker:
        wait_until(lambda: worker.output().count("stator.ready") == 2, message=worker.output)
        with without_column():
            put_thread_jobs()
            assert worker.wait() == 75, worker.output()
        assert f"runstator: {LINE}" in worker.output().splitlines()
        assert "Traceback" not in worker.output()
