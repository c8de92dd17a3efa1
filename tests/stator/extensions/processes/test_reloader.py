"""``runstator --reload``: a new worker when code changes, also after code that cannot be loaded."""

import signal
import subprocess
import sys
from contextlib import contextmanager, suppress

import psutil
import pytest
from django.core.management import CommandError, call_command

from tests.processes import wait_until
from tests.projects import ORDER, environment, temporary_project
from tests.sizes import PATIENCE


@contextmanager
def reloading(tmp_path, *options):
    """A project, the command in it, and its log."""
    with temporary_project(tmp_path) as project:
        project.begin("shop")
        project.write("shop/models.py", ORDER)
        project.make_tables("shop")
        log = tmp_path / "log"
        with log.open("w") as stream:
            command = [sys.executable, "manage.py", "runstator", "--reload", *options]
            started = subprocess.Popen(
                command, cwd=tmp_path, env=environment(), stdout=stream, stderr=stream, start_new_session=True
            )
        try:
            yield project, started, log
        finally:
            if started.poll() is None:
                started.kill()


@pytest.mark.django_db(transaction=True)
def test_worker_is_replaced_when_code_changes_and_ends_with_the_command(tmp_path):
    with reloading(tmp_path) as (project, started, log):
        wait_until(lambda: log.read_text().count("stator.ready") == 1, message=log.read_text)
        # What changes before the command first looks at the files is not a change; so until it has noticed one.
        wait_until(lambda: _break_until_noticed(project, log), message=log.read_text)
        wait_until(lambda: "SyntaxError" in log.read_text(), message=log.read_text)
        assert log.read_text().count("stator.ended ended=stopped") == 1
        project.write("shop/models.py", ORDER)
        wait_until(lambda: log.read_text().count("stator.ready") == 2, message=log.read_text)
        started.send_signal(signal.SIGTERM)
        assert started.wait(PATIENCE) == 0, log.read_text()
        assert log.read_text().count("stator.ended ended=stopped") == 2


@pytest.mark.django_db(transaction=True)
def test_workers_end_when_the_command_is_killed(tmp_path):
    workers = []
    with reloading(tmp_path, "--processes", "2") as (_, started, log):
        try:
            wait_until(lambda: log.read_text().count("stator.ready") == 2, message=log.read_text)
            workers = psutil.Process(started.pid).children(recursive=True)
            started.kill()
            started.wait(PATIENCE)
            wait_until(lambda: not any(each.is_running() for each in workers), message=log.read_text)
        finally:
            for each in workers:
                with suppress(psutil.NoSuchProcess):
                    each.kill()


def _break_until_noticed(project, log):
    if "has changed" in log.read_text():
        return True
    project.write("shop/models.py", ORDER + "this is no code\n")
    return False


def test_program_that_calls_the_command_is_refused():
    with pytest.raises(CommandError, match="--reload is for a command line") as refused:
        call_command("runstator", "--reload")
    assert refused.value.returncode == 2
