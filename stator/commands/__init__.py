"""The subcommands of ``manage.py stator``, one module each: HELP, add_arguments(parser), run(options) -> Answer."""

from argparse import ArgumentParser
from functools import cache
from importlib import import_module
from typing import Protocol, cast

from stator.batteries import extensions
from stator.commands import move, preview, prune, retry, statements, unlock
from stator.commands.answer import Answer, Options


class Subcommand(Protocol):
    """A module with a subcommand."""

    __name__: str
    HELP: str

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the arguments beyond the common ones."""

    def run(self, options: Options) -> Answer:
        """Answer."""


_MODULES: tuple[Subcommand, ...] = (
    retry, unlock, move, preview, prune,
    statements,
)  # fmt: skip


@cache
def subcommands() -> dict[str, Subcommand]:
    """Return the subcommands by their names, those of extensions last."""
    paths = [path for extension in extensions() for path in extension.commands]
    further = [cast(Subcommand, import_module(path)) for path in paths]
    return {module.__name__.rpartition(".")[2]: module for module in (*_MODULES, *further)}
