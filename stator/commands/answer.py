"""What every subcommand has: an answer, a refusal, tables, and who runs it."""

import getpass
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from stator.texts import escape


class BadInput(Exception):
    """The request is invalid; the message is one line that says why and what to do instead."""


@dataclass(frozen=True, slots=True)
class Answer:
    """``data`` is for programs, as JSON; ``lines`` are for people; ``code`` is the exit code."""

    data: Any
    lines: list[str] = field(default_factory=list)
    code: int = 0


def table(heads: list[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Return the lines of a table, columns as wide as their content."""
    cells = [heads, *([escape(str(value)) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(heads))]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def actor() -> str:
    """Return who runs the command: the name of the operating system's user."""
    try:
        return getpass.getuser()
    except (KeyError, ImportError, OSError):
        # A container may run under a user id without a name.
        return f"user {os.getuid()}"
