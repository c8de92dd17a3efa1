"""Management commands as they are called at a terminal: what they print, and how they refuse."""

import io
import json
from contextlib import suppress

import pytest
from django.core.management import CommandError, call_command, execute_from_command_line


def run(*arguments, code=0):
    """Return what a command writes to standard output; ``code`` is the exit code that it must end with."""
    out = io.StringIO()
    if code:
        with pytest.raises(SystemExit) as ended:
            call_command(*map(str, arguments), stdout=out)
        assert ended.value.code == code
    else:
        call_command(*map(str, arguments), stdout=out)
    return out.getvalue()


def asked(*arguments, code=0):
    """The JSON document that a command writes."""
    return json.loads(run(*arguments, "--json", code=code))


def refused(*arguments):
    """The one line of a refusal with exit code 2."""
    with pytest.raises(CommandError) as refusal:
        run(*arguments)
    assert refusal.value.returncode == 2
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def line_at_a_terminal(capsys, *arguments):
    """The one line with which ``manage.py`` refuses these arguments, with exit code 2."""
    with pytest.raises(SystemExit) as ended:
        execute_from_command_line(["manage.py", *arguments])
    assert ended.value.code == 2
    out, errors = capsys.readouterr()
    [line] = errors.strip().splitlines()
    assert out == ""
    return line


def shell(*arguments):
    """What ``manage.py`` prints."""
    out = io.StringIO()
    with suppress(SystemExit):
        call_command(*arguments, stdout=out, stderr=out)
    return out.getvalue()
