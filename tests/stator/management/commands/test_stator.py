"""The command ``stator``: its options, its exit codes, and one line for each refusal."""

import io
from contextlib import redirect_stderr

import pytest
from django.core.management import call_command

from stator.commands import subcommands
from tests.commanding import line_at_a_terminal
from tests.stator.commands.errands import LABEL

pytestmark = pytest.mark.django_db(transaction=True)


def test_wrong_arguments_are_one_line_and_exit_code_2(capsys):
    for arguments in (["nothing"], ["graph", LABEL, "--format", "png"], ["move", LABEL, "done", "1"]):
        assert line_at_a_terminal(capsys, "stator", *arguments).startswith("stator: ")


def test_every_subcommand_has_help():
    for name, module in subcommands().items():
        out = io.StringIO()
        with redirect_stderr(out), pytest.raises(SystemExit) as ended:
            call_command("stator", name, "--help", stdout=out)
        assert ended.value.code == 0
        assert module.HELP
