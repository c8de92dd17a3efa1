"""A full disk of the database (F35): workers wait without spinning, and go on with all they had when there is room."""

import os
import re
import shutil
import subprocess
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event as Flag
from urllib.parse import quote

import psutil
import pytest
from django.db import OperationalError, connection
from django.utils import timezone

from tests.faults.fleet import logged
from tests.faults.servers import execute
from tests.projects import is_mariadb
from tests.servers.user import give_to_server, open_place
from tests.testapp import faults
from tests.testapp.faults import Job

pytestmark = [pytest.mark.fault, pytest.mark.django_db(transaction=True)]

# Seconds, megabytes.
WATCHED_FOR = 2.0
SIZE = 8
# Those that are written most.
TABLES = ("testapp_job", "testapp_event")


@pytest.fixture
def disk(request):
    """A small disk; gives the variables of workers on it, what fills it and what makes room again."""
    disks = {"sqlite": small_file, "postgresql": small_tablespace, "mysql": small_folder}
    with disks[connection.vendor](request) as disk:
        yield disk


@contextmanager
def small_file(request):
    """SQLite lets each connection say how large the file may become."""
    request.getfixturevalue("transactional_db")
    execute("VACUUM")
    most = execute("PRAGMA page_count") + SIZE * 256
    first = f"PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA max_page_count={most}"
    yield {"DATABASE_URL": f"sqlite:///db.sqlite3?init_command={quote(first)}"}, lambda: fill_file(most), empty_file


def fill_file(most):
    while execute("PRAGMA page_count") < most or execute("PRAGMA freelist_count"):
        faults.Event.objects.bulk_create(
            faults.Event(label="ballast", at=timezone.now(), old="x" * 3000) for _ in range(100)
        )


def empty_file():
    faults.Event.objects.filter(label="ballast").delete()


@contextmanager
def small_tablespace(request):
    """The tables that are written most on a file system of few megabytes."""
    own = request.getfixturevalue("own")
    with small_file_system(SIZE) as place:
        execute(f"CREATE TABLESPACE small LOCATION '{place}'")
        try:
            for table in TABLES:
                execute(f"ALTER TABLE {table} SET TABLESPACE small")
            execute("CREATE TABLE ballast (text text) TABLESPACE small")
            yield own, fill_tablespace, lambda: execute("DROP TABLE ballast")
        finally:
            execute("DROP TABLE IF EXISTS ballast")
            for table in TABLES:
                execute(f"TRUNCATE {table} CASCADE")
                execute(f"ALTER TABLE {table} SET TABLESPACE pg_default")
            execute("DROP TABLESPACE small")


def fill_tablespace():
    for rows in (1000, 100, 7):
        with suppress(OperationalError):
            while True:
                execute(f"INSERT INTO ballast SELECT repeat('x', 1000) FROM generate_series(1, {rows})")


@contextmanager
def small_folder(request):
    """On MariaDB and MySQL: the same tables, each made anew with its file on a file system of few megabytes."""
    server, own = request.getfixturevalue("server"), request.getfixturevalue("own")
    # MySQL makes files only in folders that it was started with. Tables grow by a megabyte at a time.
    with small_file_system(4 * SIZE) as place, started_with(server, place):
        try:
            for table in TABLES:
                make_anew(table, f" DATA DIRECTORY='{place}'")
            ballast = place / "ballast"
            yield own, lambda: fill_folder(ballast), ballast.unlink
        finally:
            for table in TABLES:
                make_anew(table, "")


@contextmanager
def started_with(server, folder):
    """MySQL refuses folders that are not in ``innodb_directories``."""
    if is_mariadb():
        yield
        return
    connection.close()
    server.stop()
    server.options["innodb_directories"] = folder
    server.start()
    try:
        yield
    finally:
        connection.close()
        server.stop()
        del server.options["innodb_directories"]
        server.start()


def make_anew(table, where):
    """Empty a table and have its file elsewhere."""
    with connection.cursor() as cursor:
        cursor.execute(f"SHOW CREATE TABLE {table}")
        made = cursor.fetchone()[1]
        cursor.execute("SET foreign_key_checks = 0")
        cursor.execute(f"DROP TABLE {table}")
        cursor.execute(re.sub(r" DATA DIRECTORY='[^']*'", "", made).replace("/*!50100*/", "") + where)
        cursor.execute("SET foreign_key_checks = 1")


def fill_folder(ballast):
    # By a file of our own: MariaDB 10.11 crashes if the disk becomes full in the middle of large insertions.
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


@contextmanager
def small_file_system(size):
    if os.geteuid() != 0:
        pytest.skip("a small file system is mounted for this: run as root")
    place = Path(tempfile.mkdtemp(prefix="stator-small-", dir=open_place()))
    try:
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}m", "tmpfs", str(place)]
        mounted = subprocess.run(command, check=False, capture_output=True, text=True)
        if mounted.returncode:
            pytest.skip(f"a small file system is mounted for this, which is not allowed here: {mounted.stderr.strip()}")
        try:
            give_to_server(place)
            yield place
        finally:
            subprocess.run(["umount", str(place)], check=True)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def test_work_goes_on_when_there_is_room_on_the_disk_again(disk, watch, fleet, thorough):
    variables, fill, make_room = disk
    watched = watch(Job)
    Job.objects.bulk_create(Job(seconds=0.2) for _ in range(150))
    workers = fleet("testapp.Job", STATOR_CONCURRENCY=20, STATOR_MAX_CRASHES=1000, **variables)
    worker = workers.start()
    workers.until(lambda: workers.starts(worker).count() > 20)
    fill()
    workers.until(lambda: len(logged(worker, "stator.database_unreachable")) > 2)
    before, written = processor_time(worker), len(worker.output().splitlines())

    seconds = 30.0 if thorough else WATCHED_FOR

    Flag().wait(seconds)

    used, written = processor_time(worker) - before, len(worker.output().splitlines()) - written
    print(f"while the disk was full: {written} lines of log, {used:.1f} s of the processor")
    assert Job.objects.exclude(state="done").exists()
    assert written <= 15 * seconds
    assert used <= 0.5 * seconds
    make_room()
    Job.objects.update(seconds=0)
    workers.finish(Job)
    watched.judge(max_crashes=1000)


def processor_time(worker):
    return sum(psutil.Process(worker.pid).cpu_times()[:2])
