"""Options in, answer out; what each subcommand does is in ``stator.commands``."""

import json
import sys
from threading import Event
from typing import Any, NoReturn

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, InterfaceError

from stator.commands import SUBCOMMANDS
from stator.commands.answer import Answer, BadInput
from stator.commands.arguments import check_database_name
from stator.failures import bounded
from stator.logs import escape

UNUSABLE = 75
WATCHED_EVERY = 2.0
CLEAR = "\x1b[2J\x1b[H"


class Command(BaseCommand):
    """``manage.py stator``."""

    help = "Look at managed objects and the workers that move them, and act on them."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        """The subcommands; all take ``--json`` and ``--database``."""
        chosen = parser.add_subparsers(dest="subcommand", metavar="SUBCOMMAND", required=True)
        self._one_line_errors(parser)
        for name, module in SUBCOMMANDS.items():
            part = chosen.add_parser(name, help=module.HELP, description=module.HELP)
            part.add_argument("--json", action="store_true", help="One JSON document on standard output.")
            part.add_argument("--database", metavar="ALIAS", help="Instead of where the routers write each model.")
            module.add_arguments(part)
            self._one_line_errors(part)

    def handle(self, *args: Any, **options: Any) -> None:
        """Answer, again and again with ``--watch``; ends the process with the exit code of the answer."""
        while True:
            answer = self._answer(options)
            self._print(answer, options)
            if answer.code:
                sys.exit(answer.code)
            if not options.get("watch"):
                return
            try:
                Event().wait(WATCHED_EVERY)
            except KeyboardInterrupt:
                return

    def _answer(self, options: dict[str, Any]) -> Answer:
        try:
            check_database_name(options["database"])
            answer: Answer = SUBCOMMANDS[options["subcommand"]].run(options)
        except (BadInput, ImproperlyConfigured) as error:
            raise CommandError(escape(str(error)), returncode=2) from error
        except (DatabaseError, InterfaceError) as error:
            text = bounded(" ".join(str(error).split()), 300)
            message = f"the database cannot be used: {text}; try manage.py stator doctor"
            raise CommandError(message, returncode=UNUSABLE) from error
        return answer

    def _print(self, answer: Answer, options: dict[str, Any]) -> None:
        if options["json"]:
            self.stdout.write(json.dumps(answer.data, default=str))
            return
        if options.get("watch"):
            self.stdout.write(CLEAR, ending="")
        for line in answer.lines:
            self.stdout.write(escape(line))

    def _one_line_errors(self, parser: CommandParser) -> None:
        if getattr(self, "_called_from_command_line", False):
            # One line instead of the usage, which is longer than the message.
            setattr(parser, "error", _argument_error)  # noqa: B010 - a method is replaced on the instance


def _argument_error(message: str) -> NoReturn:
    sys.stderr.write(f"stator: {message}; see stator --help\n")
    sys.exit(2)
