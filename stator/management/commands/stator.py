"""The command ``stator``; its subcommands are in ``stator.commands``."""

from django.core.management.base import CommandParser

from stator.commands import subcommands
from stator.commands.answer import Answer, Options
from stator.commands.arguments import check_database_name
from stator.terminal import TerminalCommand


class Command(TerminalCommand):
    """``manage.py stator``."""

    name = "stator"
    help = "Inspect and change managed objects, and inspect their workers."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the subcommands; all take ``--json`` and ``--database``."""
        chosen = self.add_group(parser, "subcommand")
        database = "Use this database instead of where the routers write each model."
        for name, module in subcommands().items():
            part = self.add_subcommand(chosen, name, module.HELP, module.run)
            part.add_argument("--database", metavar="ALIAS", help=database)
            module.add_arguments(part)

    def act(self, options: Options) -> Answer:
        """Run the subcommand."""
        check_database_name(options.get("database"))
        return super().act(options)
