"""The directory on the command line, checked."""

import os
import stat
from pathlib import Path

import django
from django.core.management import CommandError

from examples.codeindex.scan import MAX_ROOT
from examples.codeindex.text import nameable, printable

REMEDY = "give a directory with Python files, or no PATH for the installed Django"


def checked_directory(path: str | None) -> str:
    """Return the absolute path of a directory; raise `CommandError` if it cannot be listed."""
    if path is None:
        return str(Path(django.__file__).resolve().parent)
    if not path.strip() or "\0" in path:
        raise refusal(path, "names no directory")
    real = os.path.realpath(path)
    try:
        mode = Path(real).stat().st_mode
    except OSError as error:
        raise refusal(path, str(error.strerror).lower()) from None
    if not stat.S_ISDIR(mode):
        raise refusal(path, "not a directory")
    if not os.access(real, os.R_OK | os.X_OK):
        raise refusal(path, "permission denied")
    if not nameable(real) or len(real) > MAX_ROOT:
        raise refusal(path, f"cannot be stored: it is not UTF-8, or longer than {MAX_ROOT} characters")
    return real


def refusal(path: str, reason: str) -> CommandError:
    """Return the error for a PATH that cannot be indexed, in one line."""
    return CommandError(f"PATH '{printable(path)}': {reason}; {REMEDY}", returncode=2)
