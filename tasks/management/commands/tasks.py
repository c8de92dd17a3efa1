"""``manage.py tasks``: queues and dead letters, schedules, and API tokens."""

from functools import partial

from django.core.management.base import CommandParser

from stator.terminal import TerminalCommand
from tasks.commands import operating, queues, single_tasks
from tasks.extensions.api import tasks_commands as tokens
from tasks.extensions.schedules import tasks_commands as schedules
from tasks.extensions.throttles import tasks_commands as limits


class Command(TerminalCommand):
    """``manage.py tasks``."""

    name = "tasks"
    help = "Inspect and change queues, dead letters and schedules, and tokens of the HTTP API."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the subcommands; all take ``--json``."""
        groups = self.add_group(parser, "act")
        for module in (
            single_tasks,
            operating,
            limits,  # tasks.extensions.throttles
            schedules,  # tasks.extensions.schedules
        ):
            module.add_subcommands(partial(self.add_subcommand, groups))
        for name, acts, module, help_text in (
            ("queue", "create|set", queues, "Create queues and change their rules."),
            ("token", "create|list|revoke", tokens, "Manage tokens of the HTTP API."),  # tasks.extensions.api
        ):
            part = groups.add_parser(name, help=help_text)
            module.add_subcommands(partial(self.add_subcommand, self.add_group(part, f"{name}_act", acts)))
