"""Options in, answer out; what each subcommand does is in ``stator.commands``."""

import json
import os
import sys
from typing import Any, NoReturn

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, InterfaceError

from stator.commands import SUBCOMMANDS
from stator.commands.answer import Answer, BadInput
from stator.commands.arguments import check_database_name
from stator.commands.watching import unusable, watch
from stator.logs import escape

UNUSABLE, INTERRUPTED = 75, 130


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
        try:
            self._handle(options)
        except (BadInput, ImproperlyConfigured) as error:
            raise CommandError(escape(str(error)), returncode=2) from error
        except (DatabaseError, InterfaceError) as error:
            raise CommandError(f"{unusable(error)}; try manage.py stator doctor", returncode=UNUSABLE) from error
        except BrokenPipeError:
            # Whoever read it has seen enough; what is still in the buffer goes nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except KeyboardInterrupt:
            if not self._is_on_its_own:
                raise
            sys.exit(INTERRUPTED)

    def _handle(self, options: dict[str, Any]) -> None:
        check_database_name(options["database"])
        subcommand = SUBCOMMANDS[options["subcommand"]]
        if options.get("watch"):
            watch(self.stdout, lambda: subcommand.run(options), every=options["every"], as_json=options["json"])
            return
        answer = subcommand.run(options)
        self._print(answer, options)
        if answer.code:
            sys.exit(answer.code)

    def _print(self, answer: Answer, options: dict[str, Any]) -> None:
        for line in [json.dumps(answer.data, default=str)] if options["json"] else map(escape, answer.lines):
            self.stdout.write(line)
        self.stdout.flush()

    @property
    def _is_on_its_own(self) -> bool:
        """Whether the process runs nothing but this command."""
        return bool(getattr(self, "_called_from_command_line", False))

    def _one_line_errors(self, parser: CommandParser) -> None:
        if self._is_on_its_own:
            # One line instead of the usage, which is longer than the message.
            setattr(parser, "error", _argument_error)  # noqa: B010 - a method is replaced on the instance


def _argument_error(message: str) -> NoReturn:
    sys.stderr.write(f"stator: {message}; see stator --help\n")
    sys.exit(2)
