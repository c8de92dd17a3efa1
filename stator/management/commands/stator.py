"""The command ``stator``; its subcommands are in ``stator.commands``."""

from typing import Any, cast

from django.core.management.base import CommandParser

from stator.commands import SUBCOMMANDS
from stator.commands.answer import Answer
from stator.commands.arguments import Options, check_database_name
from stator.terminal import SubcommandParser, TerminalCommand


class Command(TerminalCommand):
    """``manage.py stator``."""

    name = "stator"
    help = "Inspect and change managed objects, and inspect their workers."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the subcommands; all take ``--json`` and ``--database``."""
        chosen = parser.add_subparsers(
            dest="subcommand", metavar="SUBCOMMAND", required=True, parser_class=SubcommandParser
        )
        self.one_line_errors(parser)
        for name, module in SUBCOMMANDS.items():
            part = self.add_subcommand(chosen, name, module.HELP)
            part.add_argument(
                "--database", metavar="ALIAS", help="Use this database instead of where the routers write each model."
            )
            module.add_arguments(part)

    def act(self, options: dict[str, Any]) -> Answer:
        """Run the subcommand."""
        check_database_name(options["database"])
        return SUBCOMMANDS[options["subcommand"]].run(cast("Options", options))
