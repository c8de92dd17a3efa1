"""Directives that write the reference from the code: the help of a command, a table of settings."""

import argparse
import os
from dataclasses import fields
from typing import Any

from django.core.management import get_commands, load_command_class
from django.utils.module_loading import import_string
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

# Options of every command of Django, which its own documentation describes.
COMMON = (
    "--version", "--verbosity", "--settings", "--pythonpath", "--traceback", "--no-color", "--force-color",
    "--skip-checks",
)  # fmt: skip


class CommandHelp(SphinxDirective):
    """``.. command-help:: stator``: what ``manage.py stator --help`` prints, and its subcommands, each in a section."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the help as blocks of text."""
        [name] = self.arguments
        # argparse breaks lines for this width.
        os.environ["COLUMNS"] = "100"
        parser = load_command_class(get_commands()[name], name).create_parser("manage.py", name)
        return [_block(parser), *self._subcommands(parser, name)]

    def _subcommands(self, parser: argparse.ArgumentParser, path: str) -> list[nodes.Node]:
        found: list[nodes.Node] = []
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for name, part in action.choices.items():
                    section = nodes.section(ids=[nodes.make_id(f"{path} {name}")], names=[f"{path} {name}"])
                    section += nodes.title(text=f"{path} {name}")
                    section += [_block(part), *self._subcommands(part, f"{path} {name}")]
                    self.state.document.note_implicit_target(section, section)
                    found.append(section)
        return found


class SettingsTable(SphinxDirective):
    """``.. settings-table:: stator.conf.Settings``: each setting with its default, its limits and what it means."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return a list of definitions."""
        settings: Any = import_string(self.arguments[0])
        lines = [line for option in fields(settings) for line in _described(option)]
        holder = nodes.container()
        self.state.nested_parse(StringList(lines, source=self.arguments[0]), 0, holder)
        return holder.children


def _described(option: Any) -> list[str]:
    metadata = option.metadata
    limits = [f"at least {metadata['least']:g}"] if isinstance(metadata["least"], int | float) else []
    limits += [f"at most {metadata['of_lease']:g} of the lease by default"] if metadata["of_lease"] else []
    facts = "; ".join([f"Default ``{option.default!r}``", *limits])
    return [f"``{option.name}``", f"   {metadata['help']}", "", f"   {facts}.", ""]


def _block(parser: argparse.ArgumentParser) -> nodes.Node:
    for action in parser._actions:
        if any(option in COMMON for option in action.option_strings):
            action.help = argparse.SUPPRESS
    return nodes.literal_block("", parser.format_help().rstrip(), language="text")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives with Sphinx."""
    app.add_directive("command-help", CommandHelp)
    app.add_directive("settings-table", SettingsTable)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
