"""Bad arguments end with one line and code 2, an unusable database with one line and code 75. Faults F41, F11."""

import io
import json
import re
import subprocess
import sys

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

from stator import __version__
from stator.management.commands import runstator
from stator.worker.startup import Unusable
from tests.commanding import line_at_a_terminal
from tests.processes import environment_for_subprocess
from tests.sizes import PATIENCE
from tests.stator.making import put, raw
from tests.stator.running import refusal_of_runstator
from tests.testapp.models import Line

NAN = float("nan")

# Arguments, options, and what the line says. None of it reaches a database: the tests have no access to one.
BAD_ARGUMENTS = [
    (["testapp.Nowhere"], {}, "'testapp.Nowhere' is not a model; did you mean testapp."),
    (["testapp.Line\nstator.forged"], {}, r"'testapp.Line\nstator.forged' is not a model"),
    (["auth.User"], {}, "'auth.User' is not managed by Stator; let it inherit StatorModel"),
    ([], {"exclude": ["auth.User"]}, "'auth.User' is not managed by Stator"),
    (["testapp.Branch"], {"exclude": ["testapp.BigKeyed"]}, "no models are left to work on; name models"),
    ([], {"concurrency": 0}, "--concurrency 0 must be at least 1"),
    ([], {"concurrency": NAN}, "--concurrency nan must be a whole number"),
    ([], {"concurrency_per_model": -1}, "--concurrency-per-model -1 must be at least 0"),
    ([], {"name": "a\tb"}, "must be a text of 1 to 100 printable characters"),
    ([], {"run_for": NAN}, "--run-for nan must be a number of seconds"),
    ([], {"schedule_interval": 0.0}, "--schedule-interval 0.0 must be at least 0.05"),
    ([], {"shutdown_timeout": 1e9}, "--shutdown-timeout 1000000000.0 must not be longer than LEASE"),
    ([], {"database": "nowhere"}, "--database 'nowhere' is not in DATABASES; choose from default, other"),
]

# As a shell gives them.
BAD_COMMAND_LINES = [
    (["--concurrency", "NaN"], "argument -c/--concurrency: invalid int value: 'NaN'"),
    (["-s", "0"], "CommandError: --schedule-interval 0.0 must be at least 0.05"),
]

# A database that cannot be reached.
AWAY = {"DATABASE_URL": "postgresql://nobody:hunter2@127.0.0.1:1/nowhere", "TEST_DATABASE_DEFAULT": "x"}


@pytest.mark.parametrize(("labels", "options", "message"), BAD_ARGUMENTS, ids=str)
def test_bad_arguments_are_refused_in_one_line_before_a_database_is_touched(labels, options, message):
    assert message in refusal_of_runstator(*labels, **options)


def test_bad_settings_are_refused_in_one_line():
    with override_settings(STATOR={"LEESE": 5}), pytest.raises(CommandError) as caught:
        call_command("runstator", "testapp.Line")
    assert str(caught.value) == "STATOR setting: 'LEESE' is not a setting; did you mean 'LEASE'?"
    assert caught.value.returncode == 2


def run(*arguments, **variables):
    return subprocess.run(
        [sys.executable, "-m", "django", "runstator", *arguments],
        env=environment_for_subprocess(**variables), capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), BAD_COMMAND_LINES, ids=str)
def test_bad_command_line_ends_with_code_2_and_one_line(arguments, message, capsys):
    assert message in line_at_a_terminal(capsys, "runstator", *arguments)


def test_process_with_a_bad_command_line_looks_for_no_database():
    done = run("x;drop table", **AWAY)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.strip().splitlines()
    assert "'x;drop table' is not a model" in line


def test_missing_database_file_is_reported_and_not_made(tmp_path):
    path = tmp_path / "none.sqlite3"
    done = run("testapp.Line", DATABASE_URL="sqlite:////", TEST_DATABASE_DEFAULT=str(path))
    assert done.returncode == 75
    remedy = "put it back, or run manage.py migrate"
    assert done.stderr.strip() == f"runstator: database 'default': its file {path} does not exist; {remedy}"
    assert not path.exists()


@pytest.mark.usefixtures("transactional_db")
class TestWorking:
    def test_every_option_is_taken(self):
        put(Line)
        call_command(
            "runstator", "testapp.Line", "testapp.SyncLine", "-x", "testapp.SyncLine", "-c", "3",
            "--concurrency-per-model", "2", "-s", "10", "-r", "60",
            "--until-idle", "--shutdown-timeout", "5", "--json-logs",
            "--database", "default",
        )  # fmt: skip
        assert raw(Line).get().state == "last"

    def test_real_process_says_what_it_serves_and_how_when_it_is_ready_and_why_it_ends(self):
        put(Line)
        done = run("testapp.SyncLine", "testapp.Line", "-c", "7", "--until-idle", STATOR_LEASE="20")
        assert done.returncode == 0
        starting, serving, ready, stopping, ended = [line[26:] for line in done.stderr.splitlines()]
        assert re.fullmatch(
            rf"INFO stator.starting worker=[0-9a-f]{{12}} worker_name=\S+ version={__version__} pid=\d+ concurrency=7 "
            r"concurrency_per_model=0 threads=10 lease=20 .*",
            starting,
        )
        assert serving == "INFO stator.serving database=default models=testapp.line,testapp.syncline"
        assert re.fullmatch(r"INFO stator.ready seconds=\d+\.\d+", ready)
        assert stopping == "INFO stator.stopping why=idle"
        assert ended == "INFO stator.ended ended=idle handled=2 failed=0 lost=0 unfinished=0"
        assert raw(Line).get().state == "last"

    def test_program_that_calls_it_may_have_the_errors_elsewhere(self):
        put(Line)
        errors = io.StringIO()
        call_command("runstator", "testapp.Line", "--until-idle", "--json-logs", stderr=errors)
        assert raw(Line).get().state == "last"
        events = [json.loads(line)["event"] for line in errors.getvalue().splitlines()]
        assert events == [f"stator.{name}" for name in ("starting", "serving", "ready", "stopping", "ended")]

    def test_program_that_calls_it_is_not_ended_where_the_database_cannot_be_used(self, monkeypatch):
        def refuse(models, alias, schemas):
            raise Unusable("database 'default' is away; look for it")

        monkeypatch.setattr(runstator, "check_database", refuse)
        errors = io.StringIO()
        with pytest.raises(SystemExit) as ended:
            call_command("runstator", "testapp.Line", stderr=errors)
        assert ended.value.code == 75
        assert errors.getvalue() == "runstator: database 'default' is away; look for it\n"
