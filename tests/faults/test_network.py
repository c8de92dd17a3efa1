"""Replies that are lost after the commit (F5, F6), and networks that delay, drop and swallow (F9)."""

import random
from collections import Counter
from datetime import UTC, datetime
from threading import Event as Flag
from time import monotonic

import pytest
from django.db import InterfaceError, OperationalError, connection
from django.db.models import F

from tasks.models import Task
from tests.faults.events import Kind
from tests.faults.fleet import logged
from tests.faults.proxy import Proxy, committed_on_mysql, committed_on_postgresql
from tests.tasks.making import make_queue
from tests.testapp.faults import Effect, Job, ThreadJob
from tests.testapp.harmed import Booking, Pulse

pytestmark = [
    pytest.mark.fault, pytest.mark.postgresql, pytest.mark.mariadb, pytest.mark.django_db(transaction=True),
]  # fmt: skip

POSTGRESQL = connection.vendor == "postgresql"
RENEW = rb'UPDATE "testapp_\w+" SET "state_locked_until" = \('
CLAIM = rb'UPDATE "testapp_\w+" SET [^;]*"state_claim" = (CAST\(CASE |\')[^;]* FROM picked'
RECORD = rb'unnest\(.*UPDATE "testapp_\w+" SET '
REAP = rb'UPDATE "testapp_\w+" SET [^;]*"state_crashes" = (?:\(|CASE )'
ANYTHING = rb"^[QP]\x00"
INTO_EFFECTS, INTO_TASKS = rb'INSERT INTO "testapp_effect"', rb'INSERT INTO "tasks_task"'
if not POSTGRESQL:
    RENEW = rb"UPDATE `testapp_\w+` SET `state_locked_until` = \("
    CLAIM = rb"UPDATE `testapp_\w+` SET [^;]*`state_claim` = (CASE |')"
    RECORD = rb"UPDATE `testapp_\w+` SET [^;]*`state` = '"
    REAP = rb"UPDATE `testapp_\w+` SET [^;]*`state_crashes` = (?:\(|CASE )"
    ANYTHING = rb"^..\x00\x00\x03"
    INTO_EFFECTS, INTO_TASKS = rb"INSERT INTO `testapp_effect`", rb"INSERT INTO `tasks_task`"

# No lease ends while a test lasts: what is done was not done by way of the reaper.
UNHURRIED = {"STATOR_LEASE": 600, "STATOR_CONCURRENCY": 10, "STATOR_THREADS": 5}


@pytest.fixture
def proxy(transactional_db):
    """Between workers and the database of the test; for Unix sockets there is none."""
    given = connection.get_connection_params()
    committed = committed_on_postgresql if POSTGRESQL else committed_on_mysql
    with Proxy(given["host"], int(given["port"] or 5432), committed) as proxy:
        yield proxy


def through(proxy):
    """The variables with which a worker reaches the database by way of the proxy."""
    user, password = (connection.settings_dict[name] for name in ("USER", "PASSWORD"))
    return {"DATABASE_URL": f"{connection.vendor}://{user}:{password}@127.0.0.1:{proxy.port}/by-proxy"}


@pytest.mark.parametrize(
    ("model", "statement"),
    [(Job, CLAIM), (ThreadJob, RECORD), (Booking, INTO_EFFECTS)],
    ids=["async-claim", "thread-record", "atomic-commit"],
)
def test_reply_that_is_lost_after_the_commit_costs_no_outcome_and_no_lease(
    watch, fleet, proxy, thorough, model, statement
):
    """Nor does an atomic handler have its effects twice."""
    losses, objects = (100, 3000) if thorough else (6, 200)
    watched = watch(model)
    model.objects.bulk_create(model(seconds=random.uniform(0, 0.05)) for _ in range(objects))
    workers = fleet(model._meta.label, **UNHURRIED, **through(proxy))
    started = [workers.start() for _ in range(2)]
    workers.until(lambda: all(workers.starts(worker).exists() for worker in started))

    proxy.lose_replies_to(statement, losses)
    # After each loss in a row a worker pauses for up to two seconds, and one may have them all.
    workers.until_done(model, timeout=120 + 2 * losses)
    proxy.lose_replies_to(b"", 0)
    workers.stop()

    kinds = Counter(watched.history(model).kinds())
    print(f"{proxy.lost} replies were lost, {kinds[Kind.RELEASE]} claims handed back")
    assert proxy.lost == losses
    assert kinds[Kind.MOVE] == 2 * objects
    assert kinds[Kind.REAP] == 0
    if model is Job:
        assert kinds[Kind.RELEASE] > 0
        assert [logged(worker, "stator.lease_lost") for worker in started] == [[], []]
    if model is Booking:
        assert not Booking.objects.exclude(booked=F("state_version")).exists()
        assert Effect.objects.count() == 2 * objects
    watched.judge()


def test_reply_to_a_renewal_that_is_lost_does_not_end_the_attempt(watch, fleet, proxy, gate):
    watched = watch(Job)
    Job.objects.bulk_create(Job(gate=str(gate)) for _ in range(5))
    workers = fleet("testapp.Job", STATOR_LEASE=3, **through(proxy))
    worker = workers.start()
    proxy.lose_replies_to(RENEW, 5)
    workers.until(lambda: proxy.lost == 5)

    gate.touch()
    workers.until_done(Job)

    assert logged(worker, "stator.lease_lost") == []
    workers.stop()
    assert Kind.REAP not in watched.history(Job).kinds()
    watched.judge()


def test_reply_to_a_reaping_that_is_lost_counts_one_crash(watch, fleet, proxy, gate):
    watched = watch(Job)
    Job.objects.bulk_create(Job(gate=str(gate)) for _ in range(5))
    workers = fleet("testapp.Job", STATOR_LEASE=2, STATOR_SHUTDOWN_TIMEOUT=2, **through(proxy))
    victim = workers.start()
    workers.until(lambda: workers.starts(victim).count() == 5)
    proxy.lose_replies_to(REAP, 1)
    workers.kill(victim.name)
    gate.touch()
    workers.start(STATOR_LEASE=60)

    workers.until_done(Job)

    assert proxy.lost == 1
    workers.stop()
    assert Counter(watched.history(Job).kinds())[Kind.REAP] == 5
    watched.judge()


def delay(proxy, seconds=2.0):
    proxy.delay = seconds


# How each trouble begins, how long it lasts, and how it ends: what ends a connection is over at once, the others last
# for longer than a lease. A network may come back after the kernel has given the connections up.
TROUBLES = {
    "delayed": (delay, 2.5, lambda proxy: delay(proxy, 0.0)),
    "swallowed": (Proxy.open_hole, 2.5, Proxy.close_hole),
    "swallowed and given up": (Proxy.open_hole, 2.5, lambda proxy: (proxy.cut(), proxy.close_hole())),
    "cut": (Proxy.cut, 0.2, Proxy.cut),
    "half closed": (Proxy.half_close, 0.2, Proxy.half_close),
}


def busy(objects=40):
    """Have enough to do for both workers, however long one of them is in trouble."""
    missing = objects - Job.objects.exclude(state="done").count()
    Job.objects.bulk_create(Job(seconds=random.uniform(0, 0.2)) for _ in range(missing))
    return True


def test_work_goes_on_after_trouble_on_the_wire(watch, fleet, proxy, thorough):
    """One of two workers has each trouble."""
    watched = watch(Job)
    workers = fleet(
        "testapp.Job", STATOR_CONCURRENCY=5, STATOR_LEASE=2, STATOR_SHUTDOWN_TIMEOUT=2, STATOR_MAX_CRASHES=1000
    )
    troubled = workers.start(**through(proxy))
    other = workers.start()
    begun = workers.starts(troubled)
    for name, (begin, seconds, end) in [*TROUBLES.items()] * (5 if thorough else 1):
        print(name)
        before = begun.count()
        workers.until(lambda before=before: busy() and begun.count() > before and workers.starts(other).exists())
        begin(proxy)
        Flag().wait(seconds)
        end(proxy)
        before = begun.count()
        workers.until(lambda before=before: busy() and begun.count() > before)

    workers.finish(Job)
    watched.judge(max_crashes=1000)


def test_worker_that_is_cut_off_stops_work_before_its_lease_ends(watch, fleet, proxy, tmp_path):
    watched = watch(Pulse)
    beats = tmp_path / "beats"
    Pulse.objects.create(path=str(beats))
    workers = fleet("testapp.Pulse", STATOR_LEASE=3)
    workers.start(**through(proxy))
    workers.until(beats.exists)

    proxy.open_hole()
    workers.until(lambda: stopped(beats))

    # Held up are one renewal at most, and what is asked of the database after it.
    last = datetime.fromtimestamp(beats.stat().st_mtime, UTC)
    assert last < Pulse.objects.get().state_locked_until
    other = workers.start()
    workers.until(lambda: workers.starts(other).exists())
    proxy.close_hole()
    (tmp_path / "beats.last").touch()
    workers.finish(Pulse)
    watched.judge()


def stopped(beats):
    """Whether a handler that writes a file every 20 ms has not done so for half a second."""
    before, end = beats.stat().st_mtime_ns, monotonic() + 0.5
    while monotonic() < end:
        Flag().wait(0.02)
        if beats.stat().st_mtime_ns != before:
            return False
    return True


@pytest.fixture
def by_proxy(proxy, monkeypatch):
    """The test's own connection, by way of the proxy."""
    connection.close()
    monkeypatch.setitem(connection.settings_dict, "HOST", "127.0.0.1")
    monkeypatch.setitem(connection.settings_dict, "PORT", proxy.port)
    yield proxy
    connection.close()
    monkeypatch.undo()


def test_reply_to_a_publication_that_is_lost_makes_no_second_task(by_proxy):
    queue = make_queue()
    queue.publish("resize", 7, key="before")
    by_proxy.lose_replies_to(INTO_TASKS, 1)
    with pytest.raises((OperationalError, InterfaceError)):
        queue.publish("resize", 7, key="invoice-17")
    assert by_proxy.lost == 1
    connection.close()
    assert queue.publish("resize", 7, key="invoice-17").outcome == "matched"
    assert Task.objects.filter(key="invoice-17").count() == 1
