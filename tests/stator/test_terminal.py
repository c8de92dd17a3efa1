"""Commands end in one line with an exit code of their own, whatever becomes of their arguments and their reader."""

import io
import json
import os
import subprocess
import sys
import tempfile

import pytest
from django.core.management import call_command

from stator.commands import statements
from stator.testing import drain
from tasks.models import Queue
from tests.commanding import refused, run
from tests.processes import environment_for_subprocess
from tests.sizes import PATIENCE
from tests.stator.making import ago, change, put
from tests.testapp.basic import Poll

pytestmark = pytest.mark.django_db(transaction=True)

BYTE = os.fsdecode(b"a\xff")
LOOK = ("stator", "statements", "testapp.Poll")


def ended(*arguments, redirected="", environment=None):
    """Exit code and lines of standard error of a command as a shell runs it."""
    done = subprocess.run(
        ["/bin/sh", "-c", f'exec "$0" "$@" {redirected}', sys.executable, "-m", "django", *map(os.fsencode, arguments)],
        env=environment or environment_for_subprocess(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        timeout=PATIENCE, check=False,
    )  # fmt: skip
    return done.returncode, done.stderr.decode().splitlines()


def test_output_that_cannot_be_written_is_told_in_one_line():
    told = "CommandError: standard output cannot be written: No space left on device"
    assert ended(*LOOK, redirected="> /dev/full") == (74, [told])


def test_reader_that_has_gone_ends_it_quietly():
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "django", *LOOK]
    with tempfile.TemporaryFile() as errors:
        done = subprocess.run(
            command, env=environment_for_subprocess(), stdout=writing, stderr=errors, timeout=PATIENCE, check=False
        )
        os.close(writing)
        errors.seek(0)
        assert (done.returncode, errors.read()) == (0, b"")


INTERRUPTED = """
import os, signal, sys
from django.core.management import execute_from_command_line
import django; django.setup()
from stator.commands import statements as where
def interrupt(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGINT)
# Whoever started the tests may ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)
where.sent_for = interrupt
execute_from_command_line(["manage.py", *sys.argv[1:]])
"""


def test_interrupted_command_ends_silently_with_130():
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, *LOOK], env=environment_for_subprocess(), capture_output=True,
        text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (130, "")


def test_program_that_calls_it_gets_the_interrupt_itself(monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(statements, "sent_for", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run(*LOOK)


OF_BYTES = [
    f"tasks cancel 1 --reason {BYTE}",  # tasks.extensions.tasks_commands
    f"tasks requeue --queue {BYTE}",  # tasks.extensions.tasks_commands
    f"tasks token create name --queue {BYTE} --verb claim",  # tasks.extensions.api, tasks.extensions.tasks_commands
    f"stator move testapp.Line last 1 --reason {BYTE}",
    f"stator move testapp.Keyed last {BYTE} --reason r",
    f"stator explain testapp.Line {BYTE}",  # stator.extensions.problems
]


@pytest.mark.needs("queue")
def test_bytes_that_are_no_text_are_refused():
    for arguments in OF_BYTES:
        assert refused(*arguments.split()) == r"'a\udcff' is not UTF-8"


def test_database_that_refuses_connections_is_not_said_to_lack_tables():
    away = environment_for_subprocess(
        DATABASE_URL="postgresql://nobody:hunter2@127.0.0.1:1/nowhere", TEST_DATABASE_DEFAULT="x"
    )
    code, lines = ended("stator", "retry", "testapp.Poll", "1", environment=away)
    assert (code, len(lines)) == (75, 1)
    assert lines[0].startswith("CommandError: the database cannot be used: connection failed")
    assert lines[0].endswith("; try manage.py stator doctor")
    assert "hunter2" not in lines[0]


SCRIPT = """
import json
import sys

from django.core.management import execute_from_command_line

codes = []
for given in json.loads(sys.argv[1]):
    try:
        execute_from_command_line(["manage.py", *given])
        codes.append(0)
    except SystemExit as end:
        codes.append(end.code)
sys.stdout.flush()
print(json.dumps(codes), file=sys.stderr)
"""
WORD = "größe"
SPOKEN = [["stator", "status"], ["stator", "explain", "testapp.Poll"], ["tasks", "queue", "create", WORD]]


@pytest.mark.needs("problems", "tasks_commands")
def test_commands_write_and_read_any_text_on_an_ascii_terminal():
    poll = Poll.objects.create(reason=f"{WORD} \N{RIGHTWARDS ARROW} end")
    drain(Poll)
    change(poll, state_ready=False, state_next_attempt=ago(-600))
    asked = [[*given, str(poll.pk)] if "explain" in given else given for given in SPOKEN]
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(asked, ensure_ascii=False).encode()],
        env=environment_for_subprocess(**ascii_only), capture_output=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stderr.splitlines()[-1]) == [0] * len(SPOKEN), done.stderr
    assert f"{WORD} \N{RIGHTWARDS ARROW} end".encode("ascii", "backslashreplace") in done.stdout, done.stdout.decode()
    assert Queue.objects.filter(name=WORD).exists()


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_levels_have_colours_on_a_terminal_and_nowhere_else():
    Poll.stator.pause(reason="night")
    put(Poll)
    colored, plain = Terminal(), io.StringIO()
    call_command("stator", "status", stdout=colored, force_color=True)
    call_command("stator", "status", stdout=plain, force_color=True)
    assert "\x1b[" in colored.getvalue()
    assert "\x1b[" not in plain.getvalue()
    monochrome = Terminal()
    call_command("stator", "status", stdout=monochrome, no_color=True)
    assert "\x1b[" not in monochrome.getvalue()
