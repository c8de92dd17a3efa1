"""What writes the reference from the code: the help of a command, settings, and the facts and places of options."""

import argparse
import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

import option_examples as examples
from django.core.management import get_commands, load_command_class
from django.utils.module_loading import import_string
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.transforms import SphinxTransform
from sphinx.util.docutils import SphinxDirective

from stator.graph import State
from stator.graph.options import OPTIONS
from stator.rows.meta import ModelOptions
from tasks.actions.registry import RegisteredAction
from tasks.actions.registry import action as declare

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
    """``.. settings-table:: stator.conf.Settings``: each setting, its facts and an example."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return a list of definitions."""
        settings: Any = import_string(self.arguments[0])
        shown = examples.SETTINGS[settings.NAME]
        _complete(settings.NAME, shown, {option.name for option in fields(settings)})
        lines = []
        for option in fields(settings):
            example = f"{settings.NAME} = {{{option.name!r}: {shown[option.name]!r}}}".replace("'", '"')
            facts = _facts(_kind(option.metadata), option.default, example, _limits(option.metadata))
            lines += [f"``{option.name}``", f"   {option.metadata['help']}", "", f"   {facts}", ""]
        return _parsed(self, lines)


class OptionsOfActions(SphinxDirective):
    """``.. options-of-actions::``: each option of ``tasks.action``, from its docstring."""

    def run(self) -> list[nodes.Node]:
        """Return a list of definitions."""
        defaults = {option.name: option for option in fields(RegisteredAction) if option.name in examples.ACTIONS}
        told = dict(re.findall(r"^``(\w+)``: (.*?)(?=^``|\Z)", inspect.getdoc(declare) or "", re.MULTILINE | re.DOTALL))
        _complete("tasks.action", examples.ACTIONS, set(told))
        lines = []
        for name, text in told.items():
            facts = _facts(
                defaults[name].type, defaults[name].default, f'@tasks.action("mail", {examples.ACTIONS[name]})'
            )
            lines += [f"``{name}``", f"   {' '.join(text.split())}", "", f"   {facts}", ""]
        return _parsed(self, lines)


class FieldsOf(SphinxDirective):
    """``.. fields-of:: tasks.models.Queue tasks.api.queues.QueueIn``: what people set, from the API's schema."""

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        """Return a list of definitions."""
        model, schema = map(import_string, self.arguments)
        shown = examples.ROWS[model.__name__]
        _complete(model.__name__, shown, set(schema.model_fields))
        lines = []
        for name, about in schema.model_fields.items():
            field = model._meta.get_field(name)
            kind, default = FIELDS[field.get_internal_type()], field.get_default()
            if field.choices:
                kind, default = f"one of {', '.join(map(str, dict(field.choices)))}", str(default)
            facts = _facts(kind, MISSING if about.is_required() else default, f"{model.__name__}({shown[name]})")
            lines += [f"``{name}``", f"   {about.description}", "", f"   {facts}", ""]
        return _parsed(self, lines)


class Options(SphinxTransform):
    """Give each definition in the reference a place to link to, and each option of a state or a model its facts."""

    # Before references are resolved.
    default_priority = 420

    def apply(self, **kwargs: Any) -> None:
        """Change the definitions of this page."""
        if not self.env.docname.startswith("reference"):
            return
        for item in self.document.findall(nodes.definition_list_item):
            title = next(part for part in _above(item) if isinstance(part, nodes.section))[0].astext()
            for literal in item[0].findall(nodes.literal):
                self._place(item, title, re.split(r"[ (=]", literal.astext())[0])

    def _place(self, item: nodes.definition_list_item, title: str, name: str) -> None:
        identifier = nodes.make_id(f"{title} {name}")
        if identifier in self.document.ids:
            return
        self.document.ids[identifier] = item[0]
        if not item[0]["ids"]:
            item[0] += nodes.reference("", "¶", refid=identifier, classes=["headerlink"])
        item[0]["ids"].append(identifier)
        if facts := FACTS.get(title, lambda name: "")(name):
            paragraph = nodes.paragraph("", "", classes=["facts"])
            parts = re.split(r"``(.*?)``", facts)
            paragraph += [nodes.literal("", part) if odd % 2 else nodes.Text(part) for odd, part in enumerate(parts)]
            item[-1] += paragraph


def _of_state(name: str) -> str:
    known = inspect.signature(State).parameters
    _complete("State", examples.STATES, set(known))
    return _facts(OPTIONS[name][1], known[name].default, f"State({examples.STATES[name]})")


def _of_model(name: str) -> str:
    defaults = {option.name: option.default for option in fields(ModelOptions)}
    return f"Default: ``{defaults[name]!r}``." if name in defaults else ""


FACTS: dict[str, Callable[[str], str]] = {"States": _of_state, "Options of StatorMeta": _of_model}

KINDS = {
    float: "seconds", int: "a whole number", str: "a text", bool: "True or False", list: "a text, or a list of texts",
    dict: "an alias, or a dictionary of aliases", tuple: "a list, a function, or its dotted path",
    Sequence: "a list of dotted paths",
}  # fmt: skip


FIELDS = {
    "CharField": "a text", "BooleanField": "True or False", "FloatField": "a number", "JSONField": "JSON",
    "PositiveIntegerField": "a whole number", "PositiveSmallIntegerField": "a whole number",
    "BigIntegerField": "a whole number", "DateTimeField": "a time", "ForeignKey": "a queue",
}  # fmt: skip


def _kind(metadata: Mapping[str, Any]) -> str:
    return KINDS[metadata["kind"]]


def _limits(metadata: Mapping[str, Any]) -> str:
    limits = [f"at least {metadata['least']:g}"] if isinstance(metadata["least"], int | float) else []
    limits += [f"at most {metadata['of_lease']:g} of the lease by default"] if metadata["of_lease"] else []
    return ", ".join(limits)


def _facts(kind: object, default: object, example: str, limits: str = "") -> str:
    kind = kind.__name__ if isinstance(kind, type) else str(kind)
    kind += f", {limits}" * bool(limits)
    shown = f"{default:.0f}" if isinstance(default, float) and default.is_integer() else repr(default)
    told = "" if default is MISSING else f" Default: ``{shown}``."
    return f"Type: {kind}.{told} Example: ``{example}``."


def _complete(what: str, shown: Mapping[str, object], wanted: set[str]) -> None:
    if set(shown) != wanted:
        raise ExtensionError(
            f"docs/_ext/option_examples.py, {what}: {sorted(set(shown) ^ wanted)} has no example or no option"
        )


def _above(node: nodes.Node) -> Any:
    while node.parent is not None:
        node = node.parent
        yield node


def _parsed(directive: SphinxDirective, lines: list[str]) -> list[nodes.Node]:
    holder = nodes.container()
    directive.state.nested_parse(StringList(lines, source=directive.name), 0, holder)
    return holder.children


def _block(parser: argparse.ArgumentParser) -> nodes.Node:
    for action in parser._actions:
        if any(option in COMMON for option in action.option_strings):
            action.help = argparse.SUPPRESS
    return nodes.literal_block("", parser.format_help().rstrip(), language="text")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives with Sphinx."""
    app.add_directive("command-help", CommandHelp)
    app.add_directive("settings-table", SettingsTable)
    app.add_directive("options-of-actions", OptionsOfActions)
    app.add_directive("fields-of", FieldsOf)
    app.add_transform(Options)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
