"""The command ``stator``: its options, its exit codes, and one line for each refusal."""

import io
import subprocess
import sys
from contextlib import redirect_stderr

import pytest
from django.core.management import call_command

from stator.commands import subcommands
from tests.commanding import line_at_a_terminal
from tests.sizes import PATIENCE
from tests.stator.commands.errands import LABEL

pytestmark = pytest.mark.django_db(transaction=True)


def test_wrong_arguments_are_one_line_and_exit_code_2(capsys):
    for arguments in (["nothing"], ["graph", LABEL, "--format", "png"], ["move", LABEL, "done", "1"]):
        assert line_at_a_terminal(capsys, "stator", *arguments).startswith("stator: ")


def test_refusal_on_the_command_line_has_exit_code_2_and_no_traceback(subprocess_environment):
    command = [sys.executable, "-m", "django", "stator", "explain", "no.Model", "1"]
    ended = subprocess.run(
        command, env=subprocess_environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert len(ended.stderr.strip().splitlines()) == 1


def test_every_subcommand_has_help():
    for name, module in subcommands().items():
        out = io.StringIO()
        with redirect_stderr(out), pytest.raises(SystemExit) as ended:
            call_command("stator", name, "--help", stdout=out)
        assert ended.value.code == 0
        assert module.HELP
