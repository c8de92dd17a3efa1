"""The subcommands of ``manage.py stator``, one module each: HELP, add_arguments(parser), run(options) -> Answer."""

from argparse import ArgumentParser
from typing import Protocol

from stator.commands import (
    doctor,
    errors,
    explain,
    graph,
    move,
    pause,
    preview,
    prune,
    resume,
    retry,
    statements,
    status,
    unlock,
    workers,
)
from stator.commands.answer import Answer, Options


class Subcommand(Protocol):
    """A module with a subcommand."""

    HELP: str

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the arguments beyond the common ones."""

    def run(self, options: Options) -> Answer:
        """Answer."""


SUBCOMMANDS: dict[str, Subcommand] = {
    "status": status,
    "explain": explain,
    "errors": errors,
    "graph": graph,
    "retry": retry,
    "unlock": unlock,
    "pause": pause,
    "resume": resume,
    "move": move,
    "preview": preview,
    "workers": workers,
    "prune": prune,
    "doctor": doctor,
    "statements": statements,
}
