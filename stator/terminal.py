"""The base of management commands: an error is one line and an exit code, and a closed output is no traceback."""

import argparse
import io
import json
import os
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import ClassVar, NoReturn, TypeAlias

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DEFAULT_DB_ALIAS, DatabaseError, InterfaceError, connections

from stator.commands.answer import Answer, BadInput, Options
from stator.scopes import PATHS, entering
from stator.texts import escape, one_line

BAD, UNWRITTEN, UNUSABLE, INTERRUPTED = 2, 74, 75, 130


# A group of subcommands, whose class argparse does not name for others.
Subcommands: TypeAlias = "argparse._SubParsersAction[ArgumentParser]"

# The message of argparse about a word that is none of several.
CHOICE = re.compile(r"invalid choice: '?(?P<given>[^']+?)'? \(choose from (?P<choices>.*)\)")

# Django's styles of lines by their first word, on a terminal that has colours.
STYLES = {
    "error": "ERROR", "fail": "ERROR", "warning": "WARNING", "warn": "WARNING", "ok": "SUCCESS",
    "No problems.": "SUCCESS",
}  # fmt: skip


class TerminalCommand(BaseCommand):
    """A command whose work is in its subcommands; every kind of error has its exit code."""

    requires_system_checks: list[str] = []

    # The beginning of its one-line message about wrong arguments.
    name: ClassVar[str]

    def handle(self, *args: object, **options: object) -> None:
        """Call ``act`` and print its answer; report an error by one line and an exit code."""
        if self.is_on_its_own and sys.stdout is None:
            raise CommandError("standard output is closed", returncode=UNWRITTEN)
        if self.is_on_its_own and isinstance(sys.stdout, io.TextIOWrapper):
            # A terminal or pipe whose encoding lacks a character gets its escape, as standard error always does.
            sys.stdout.reconfigure(errors="backslashreplace")
        try:
            given = _read(options)
            with entering(_schema_of(given)):
                answer = self.act(given)
            self.tell([json.dumps(answer.data, default=str)] if given["json"] else answer.lines)
        except (BadInput, ImproperlyConfigured) as error:
            raise CommandError(escape(str(error)), returncode=BAD) from error
        except CommandError as error:
            raise CommandError(escape(str(error)), returncode=error.returncode) from error
        except (DatabaseError, InterfaceError) as error:
            message = f"the database cannot be used: {one_line(error)}; try manage.py stator doctor"
            raise CommandError(message, returncode=UNUSABLE) from error
        except BrokenPipeError:
            # The reader has closed the pipe.
            _drop_output()
        except OSError as error:
            _drop_output()
            text = f"standard output cannot be written: {error.strerror or error}"
            raise CommandError(text, returncode=UNWRITTEN) from error
        except KeyboardInterrupt:
            if not self.is_on_its_own:
                raise
            sys.exit(INTERRUPTED)
        else:
            if answer.code:
                sys.exit(answer.code)

    def act(self, options: Options) -> Answer:
        """Do the work of the chosen subcommand."""
        run: Callable[[Options], Answer] = options["run"]
        return run(options)

    def tell(self, lines: Iterable[str]) -> None:
        """Write lines, with characters escaped that would forge other lines."""
        for line in lines:
            self.stdout.write(escape(line), self._style_of(line))
        # Flushed now, because a failure at the end of the process could not be reported.
        self.stdout.flush()

    def _style_of(self, line: str) -> Callable[[str], str] | None:
        """Return Django's style for a line that begins with its level; None for another line, and elsewhere."""
        name = STYLES.get(line.partition(" ")[0]) or STYLES.get(line)
        return getattr(self.style, name) if name and self.stdout.isatty() else None

    def add_group(self, parser: ArgumentParser, dest: str, metavar: str = "SUBCOMMAND") -> Subcommands:
        """Let one of several subcommands follow, and return their group of argparse. Without one, print the help."""
        self.one_line_errors(parser)
        parser.set_defaults(run=lambda options: Answer(None, parser.format_help().splitlines()), json=False)
        return parser.add_subparsers(dest=dest, metavar=metavar, parser_class=SubcommandParser)

    def add_subcommand(
        self, group: Subcommands, name: str, help_text: str, run: Callable[[Options], Answer]
    ) -> ArgumentParser:
        """Add a subcommand with ``--json`` to a group of argparse, and return its parser."""
        part = group.add_parser(name, help=help_text, description=help_text)
        part.set_defaults(run=run)
        part.add_argument("--json", action="store_true", help="Print one JSON document.")
        part.add_argument("--schema", metavar="NAME", help="Work in this schema of PostgreSQL.")
        self.one_line_errors(part)
        return part

    @property
    def is_on_its_own(self) -> bool:
        """Whether the process runs only this command."""
        return bool(getattr(self, "_called_from_command_line", False))

    def one_line_errors(self, parser: ArgumentParser) -> None:
        """Make the parser report wrong arguments in one line, without the usage, which is longer than the message."""
        if self.is_on_its_own:
            setattr(parser, "error", self._refuse)  # noqa: B010 - a method is replaced on the instance

    def _refuse(self, message: str) -> NoReturn:
        if wrong := CHOICE.search(message):
            close = get_close_matches(wrong["given"], re.findall(r"[\w-]+", wrong["choices"]), 1)
            message = f"there is no {wrong['given']!r}{f'; did you mean {close[0]!r}?' if close else ''}"
        sys.stderr.write(escape(f"{self.name}: {message}; see {self.name} --help") + "\n")
        sys.exit(BAD)


class SubcommandParser(CommandParser):
    """The parser of a subcommand; as in Python 3.13, a list of arguments may also follow an option."""

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Namespace | None = None
    ) -> tuple[Namespace, list[str]]:
        """Parse arguments; return the options and the unknown arguments."""
        given, rest = super().parse_known_args(args, namespace)
        many = next((each for each in self._actions if each.nargs == "*" and not each.option_strings), None)
        late = [each for each in rest if not each.startswith("-")]
        if many is None or not late or getattr(given, many.dest):
            return given, rest
        try:
            setattr(given, many.dest, [many.type(each) if callable(many.type) else each for each in late])
        except ValueError:
            self.error(f"argument {many.metavar}: {', '.join(map(repr, late))} cannot be read")
        return given, [each for each in rest if each.startswith("-")]


def _read(options: Mapping[str, object]) -> Options:
    """Return the options with their texts read as UTF-8, whatever the encoding of the terminal; refuse other bytes."""
    return {
        name: [_text(each) for each in value] if isinstance(value, list) else _text(value)
        for name, value in options.items()
    }


def _text(value: object) -> object:
    # Python turns bytes that it cannot read into surrogates, which databases do not accept.
    if not isinstance(value, str) or not any("\ud800" <= each <= "\udfff" for each in value):
        return value
    try:
        return os.fsencode(value).decode()
    except UnicodeError:
        raise BadInput(f"{value!r} is not UTF-8") from None


def _schema_of(options: Options) -> str:
    name, alias = options.get("schema") or "", options.get("database") or DEFAULT_DB_ALIAS
    if name and alias in connections and not PATHS.exists(name, alias):
        raise BadInput(f"--schema {name!r} is not in database {alias!r}; create it and run its migrations")
    return name


def _drop_output() -> None:
    """Send what is still buffered to the null device, so that the end of the process raises no error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
