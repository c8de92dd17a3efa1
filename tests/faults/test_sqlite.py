"""SQLite has one writer at a time: others have the whole database to themselves (F38), and nobody claims twice."""

import shutil
import sqlite3
import subprocess
from collections import Counter
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event as Flag
from threading import Timer
from time import monotonic

import pytest
from django.db import connection, connections

from stator.models import Pause
from tests.faults.events import Kind
from tests.faults.fleet import LEASE, logged
from tests.processes import events, wait_until
from tests.testapp.faults import Effect, Job

pytestmark = [pytest.mark.fault, pytest.mark.sqlite, pytest.mark.django_db(transaction=True)]

# Longer than the lease, so that attempts outlive theirs.
LOCKED_FOR = 3.5


def open_to_lock(alias="default"):
    """A connection of its own to the file of a database."""
    path = connections[alias].settings_dict["NAME"]
    return sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)


def lock_whole_database(seconds):
    """BEGIN EXCLUSIVE on a connection of its own, ended by a timer."""
    locker = open_to_lock()
    locker.execute("BEGIN EXCLUSIVE")
    release = Timer(seconds, locker.execute, ["ROLLBACK"])
    release.start()
    release.join()
    locker.close()


def test_work_goes_on_after_somebody_has_locked_the_whole_database(watch, fleet):
    watched = watch(Job)
    Job.objects.bulk_create(Job(seconds=0.2) for _ in range(120))
    workers = fleet("testapp.Job", STATOR_CONCURRENCY=5)
    started = [workers.start() for _ in range(2)]
    workers.until(lambda: Effect.objects.count() > 10)
    lock_whole_database(LOCKED_FOR)

    Job.objects.update(seconds=0)
    workers.finish(Job)

    assert all(not logged(worker, "stator.frozen") for worker in started)
    watched.judge(max_crashes=1000)


def test_four_processes_never_claim_a_row_twice(watch, fleet, gate, thorough):
    objects = 5000 if thorough else 200
    watched = watch(Job)
    Job.objects.bulk_create(Job(gate=str(gate)) for _ in range(objects))
    # A lease that no attempt outlives, however slow the machine: whatever is claimed twice is a fault.
    workers = fleet("testapp.Job", STATOR_CONCURRENCY=25, STATOR_LEASE=60)
    started = [workers.start("--until-idle") for _ in range(4)]
    # The first alone might do all.
    workers.until(lambda: all(workers.starts(worker).exists() for worker in started))
    gate.touch()

    assert [worker.wait(300) for worker in started] == [0] * 4

    kinds = Counter(watched.history(Job).kinds())
    assert kinds[Kind.CLAIM] - kinds[Kind.RELEASE] == kinds[Kind.MOVE] == 2 * objects
    assert kinds[Kind.REAP] == 0
    with closing(connection.cursor()) as cursor:
        assert cursor.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    watched.judge()


@contextmanager
def not_writable(path):
    """Let nobody write to a file, not even a process that has it open or belongs to root.

    The shared memory beside it is left alone: where that cannot be written, the kernel ends the process.
    """
    files = [path, Path(f"{path}-wal")]
    if not chattr("+i", *files):
        chattr("-i", *files)
        pytest.skip("needs root and a file system with chattr +i")
    try:
        yield
    finally:
        assert chattr("-i", *files)


def chattr(*arguments):
    program = shutil.which("chattr")
    return program and not subprocess.run([program, *arguments], capture_output=True, check=False).returncode


def database_file():
    return Path(connection.settings_dict["NAME"])


def unreachable(worker):
    """The log lines that say why a worker waits."""
    return logged(worker, "stator.database_unreachable")


@contextmanager
def few_lines_of(workers):
    """Meanwhile each step of a worker waits longer from time to time, up to two seconds, and then says why."""
    begun, before = monotonic(), {worker: len(unreachable(worker)) for worker in workers}
    yield
    counts = [len(unreachable(worker)) - before[worker] for worker in workers]
    print(f"{counts} lines in {monotonic() - begun:.1f} s")
    assert max(counts) < 20 + 5 * (monotonic() - begun)


def at_work(workers):
    """Wait until more handlers have begun, and some of each worker."""
    before = Effect.objects.count()
    workers.until(lambda: Effect.objects.count() > before + 10)
    workers.until(lambda: all(workers.starts(worker).exists() for worker in workers.alive.values()))


def finish(workers, watched):
    """Wait for the end of all work; nothing but attempts failed, and nothing was lost or done twice."""
    Job.objects.update(seconds=0)
    workers.finish(Job)
    assert {
        line["event"] for worker in workers.everyone for line in events(worker.output()) if "traceback" in line
    } <= {"stator.attempt_failed"}
    watched.judge(max_crashes=1000)


def test_work_goes_on_when_the_file_can_be_written_again(watch, fleet):
    watched = watch(Job)
    Job.objects.bulk_create(Job(seconds=0.2) for _ in range(200))
    workers = fleet("testapp.Job", STATOR_CONCURRENCY=5)
    started = [workers.start() for _ in range(2)]
    at_work(workers)

    with not_writable(database_file()), few_lines_of(started):
        workers.until(lambda: all(unreachable(worker) for worker in started))
        # No lease outlives this.
        Flag().wait(LEASE + 1)
        assert all(worker.returncode is None for worker in started)

    at_work(workers)
    told = {line["message_text"] for worker in started for line in unreachable(worker)}
    print(*sorted(told), sep="\n")
    assert told <= {"disk I/O error", "attempt to write a readonly database"}
    finish(workers, watched)


@pytest.fixture
def moved_away():
    """The path to which the file of the database was moved; it is there again after the test."""
    file = database_file()
    away = file.with_suffix(".away")
    file.rename(away)
    yield away
    connection.close()
    if away.exists():
        remove_database(file)
        away.rename(file)


def remove_database(file):
    """As somebody does who wants to begin anew."""
    for path in (file, Path(f"{file}-wal"), Path(f"{file}-shm")):
        path.unlink(missing_ok=True)


def test_work_goes_on_when_the_file_that_was_moved_away_is_back(watch, fleet, request, worker_process):
    watched = watch(Job)
    Job.objects.bulk_create(Job(seconds=0.2) for _ in range(200))
    workers = fleet("testapp.Job", STATOR_CONCURRENCY=5)
    started = [workers.start() for _ in range(2)]
    at_work(workers)

    file, away = database_file(), request.getfixturevalue("moved_away")
    # So often that each of its steps has, and none is still writing.
    workers.until(lambda: all(len(unreachable(worker)) > 8 for worker in started))
    events = watched.history(Job).events
    with few_lines_of(started):
        Flag().wait(LEASE + 1)
    # Nobody writes to it behind the back of the others, or makes an empty one in its place.
    assert watched.history(Job).events == events
    with worker_process("testapp.Job") as late:
        assert late.wait() == 75
        assert late.output() == (
            f"runstator: database 'default': its file {file} does not exist; put it back, or run manage.py migrate\n"
        )
    assert not file.exists()
    away.rename(file)

    at_work(workers)
    told = {line["message_text"] for worker in started for line in unreachable(worker)}
    assert told == {f"database file {file} was deleted or moved; put it back"}
    finish(workers, watched)


def test_commits_since_a_backup_that_is_restored_are_made_again_and_their_holders_are_refused(watch, fleet, gate):
    watched, file = watch(Job), database_file()
    Job.objects.bulk_create(Job() for _ in range(30))
    held = Job.objects.create(gate=str(gate))
    # A lease that ends after all of this: what refuses the holders of before is their claim alone. So that no other row
    # is held at the time of the backup, all rest halfway.
    Pause.objects.create(model_label="testapp.job", state="halfway")
    workers = fleet("testapp.Job", STATOR_LEASE=60)
    worker = workers.start()
    workers.until(lambda: Effect.objects.filter(object_pk=str(held.pk)).exists())
    workers.until(lambda: Job.objects.filter(state="halfway", state_claim=None).count() == 30)
    backup = backup_of(file)
    Pause.objects.all().delete()
    lost = Job.objects.create(gate=str(gate))
    workers.until(lambda: Effect.objects.filter(object_pk=str(lost.pk)).exists())
    workers.until(lambda: Job.objects.filter(state="done").count() == 30)

    connection.close()
    remove_database(file)
    wait_until(lambda: unreachable(worker), message=worker.output)
    backup.rename(file)
    assert Job.objects.filter(state="halfway").count() == 30
    Pause.objects.all().delete()
    gate.touch()

    workers.until(lambda: logged(worker, "stator.claim_ended"))
    # That of the backup is still held by its worker, whose outcome is written to it.
    finish(workers, watched)
    assert [line["pk"] for line in logged(worker, "stator.claim_ended")] == [str(lost.pk)]
    assert Effect.objects.filter(object_pk=str(held.pk), state="fresh").count() == 1
    assert not Job.objects.filter(pk=lost.pk).exists()


def backup_of(file):
    """A copy of the database beside it, made while it is in use."""
    backup = file.with_suffix(".backup")
    with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(backup)) as target:
        source.backup(target)
    return backup


def test_worker_ends_when_an_empty_file_takes_the_place_of_its_own(fleet, request):
    workers = fleet("testapp.Job")
    worker = workers.start()
    Job.objects.create()
    workers.until(lambda: Job.objects.filter(state="done").exists())
    file = database_file()

    request.getfixturevalue("moved_away")
    # With its -wal and -shm: SQLite reads those of another database as parts of the new one (SHORT_READ).
    remove_database(file)
    sqlite3.connect(file).execute("PRAGMA journal_mode=WAL").connection.close()

    assert worker.wait() == 75, worker.output()
    table = "has no table testapp_job of testapp.Job"
    assert worker.output().endswith(f"runstator: database 'default' {table}; run manage.py migrate\n")
