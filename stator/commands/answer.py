"""What every subcommand has: an answer, a refusal, tables, and who runs it."""

import getpass
import os
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.utils.module_loading import import_string

from stator.rows.actions import Action
from stator.rows.clock import moment_json
from stator.rows.problem import Problem
from stator.texts import Json, escape

# The options of a subcommand by their names; ``json`` and ``schema`` are common to all.
Options = dict[str, Any]
# Figures of one thing, by name, as JSON has them.
Figures = dict[str, Any]

# What can be done about an action: functions that return a line, given the action and the options of its command.
OFFERS = (
    "stator.extensions.undo.undo.offered",
)  # fmt: skip


class BadInput(Exception):
    """The request is invalid; the message is one line that says why and what to do instead."""


@contextmanager
def refusing(*errors: type[Exception], option: str = "") -> Iterator[None]:
    """Turn such errors of the block into a refusal of one line, which begins with the name of the option."""
    try:
        yield
    except errors as error:
        raise BadInput(f"{option}{': ' * bool(option)}{' '.join(str(error).split())}") from error


@dataclass(frozen=True, slots=True)
class Answer:
    """``data`` is for programs, as JSON; ``lines`` are for people; ``code`` is the exit code."""

    data: Json
    lines: list[str] = field(default_factory=list)
    code: int = 0


# Adds a subcommand by its name, its help and the function that answers it.
AddSubcommand = Callable[[str, str, Callable[[Options], Answer]], ArgumentParser]


def add_length(parser: ArgumentParser) -> None:
    """Add the options of a pause: why, and for how long."""
    parser.add_argument("--reason", default="", metavar="R", help="Why; shown by tasks queues and in the admin.")
    length_help = "For how long (default: until it is resumed)."
    parser.add_argument("--for", type=float, dest="seconds", metavar="SECONDS", help=length_help)


def values_of(one: object, *names: str) -> dict[str, object]:
    """Return attributes by their names, for JSON; moments as text."""
    values = {name: getattr(one, name) for name in names}
    return {name: moment_json(value) if isinstance(value, datetime) else value for name, value in values.items()}


def offer(action: Action, options: Options) -> list[str]:
    """Return the lines that say what can be done about an action; none if it has changed nothing."""
    return [import_string(path)(action, options) for path in OFFERS] if action.count else []


def with_remedy(line: str, remedy: str) -> list[str]:
    """Return a line and, below it, what to do; the line alone if nothing is to be done."""
    return [line, *([f"      -> {remedy}"] if remedy else [])]


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


def lines_of(problem: Problem) -> list[str]:
    """Return a problem as lines for a terminal: what is wrong, then the command that fixes it."""
    line = f"{problem.level:7}  {problem.where}: {problem.text}"
    return [escape(each) for each in with_remedy(line, problem.command or problem.remedy)]
