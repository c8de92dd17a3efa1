"""The reference leaves nothing out: what the code offers is compared with what the page names."""

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.core.management import load_command_class

from stator import Backoff, checks, exceptions, pytest_plugin, signals, testing
from stator.conf import Settings
from stator.extensions.metrics.measures import counters
from stator.extensions.problems.kinds import KINDS, all_kinds
from stator.graph import State
from stator.graph.options import OPTIONS, check_options
from stator.metrics import gauges
from stator.querysets import ManagedQuerySet, OperatorQuerySet
from stator.rows.beginning import FRAMEWORK_COLUMNS
from tasks.actions.registry import RegisteredAction
from tasks.conf import TaskSettings
from tasks.models import Queue, Schedule

DOCS = Path(__file__).parents[2] / "docs"
sys.path.append(str(DOCS / "_ext"))
examples: Any = import_module("option_examples")

TEXT = (DOCS / "reference.rst").read_text()


def section(title: str) -> str:
    """The text below a heading, up to the next."""
    [found] = re.findall(rf"^{title}\n-+\n(.*?)(?=^[^\n]+\n-{{3,}}\n|\Z)", TEXT, re.MULTILINE | re.DOTALL)
    return found


def named(text: str) -> set[str]:
    """Return the texts in double backquotes, without arguments."""
    return {re.split(r"[ (=]", literal)[0] for literal in re.findall(r"``([^`]+)``", text)}


def public(cls: Any) -> set[str]:
    return {name for name in vars(cls) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("title", "wanted"),
    [
        ("States", set(OPTIONS)),
        ("Columns", {*FRAMEWORK_COLUMNS, "state"}),
        ("Models", public(OperatorQuerySet) - public(ManagedQuerySet)),
        ("Tests", {*testing.__all__, *(name for name in public(pytest_plugin) if name.startswith("stator_"))}),
        ("Signals", {name for name, value in vars(signals).items() if isinstance(value, signals.Signal)}),
        ("Edges", {"a.transitions_to", "a.times_out_to", "a.fails_to", "a.when"}),
        (
            "Graphs",
            {name for name, value in vars(exceptions).items() if isinstance(value, type) and name != "StatorError"},
        ),
    ],
)
def test_everything_is_named(title: str, wanted: set[str]) -> None:
    assert wanted - named(section(title)) == set()


def test_settings_of_the_examples_are_ones_that_work(monkeypatch: pytest.MonkeyPatch) -> None:
    # Where the extension is that the how-to guide shows.
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "budget")
    for checked in (Settings, TaskSettings):
        for option in fields(checked):
            given = {option.name: examples.SETTINGS[checked.NAME][option.name]}
            assert list(checked(**checked.completed(given)).problems()) == [], given


@pytest.mark.parametrize("name", OPTIONS)
def test_a_state_takes_its_example(name: str) -> None:
    state = eval(f"State({examples.STATES[name]})", {"State": State, "Backoff": Backoff})
    check_options(name, {option: getattr(state, option) for option in OPTIONS})
    assert getattr(state, name) != getattr(State(), name)


@pytest.mark.parametrize("name", examples.ACTIONS)
def test_an_action_takes_its_example(name: str) -> None:
    made = eval(
        f"RegisteredAction(name='mail', function=print, {examples.ACTIONS[name]})",
        {"RegisteredAction": RegisteredAction},
    )
    assert getattr(made, name) != getattr(RegisteredAction(name="mail", function=print), name)


@pytest.mark.parametrize(
    ("model", "name"), [(model, name) for model in (Queue, Schedule) for name in examples.ROWS[model.__name__]]
)
def test_a_row_takes_its_example(model: Any, name: str) -> None:
    known = {model.__name__: model, "encode": Queue(pk=1, name="encode"), "datetime": datetime, "UTC": UTC}
    made = eval(f"{model.__name__}({examples.ROWS[model.__name__][name]})", known)
    others = {field.name for field in model._meta.fields if field.name != name or field.is_relation}
    made.clean_fields(exclude=others)
    assert getattr(made, name) != model._meta.get_field(name).get_default()


def test_every_option_of_runstator_is_named() -> None:
    parser = load_command_class("stator", "runstator").create_parser("manage.py", "runstator")
    common = {"--version", "-v", "--verbosity", "--settings", "--pythonpath", "--traceback", "--no-color"}
    options = {option for action in parser._actions for option in action.option_strings}
    ignored = {*common, "--force-color", "--skip-checks", "-h", "--help"}
    assert options - ignored - named(section("runstator")) == set()


def options_of(parser: Any, above: str = "") -> Iterator[tuple[str, set[str]]]:
    """Yield each subcommand, as ``queue create``, with its own options."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield above + name, {option for each in inner._actions for option in each.option_strings}
                yield from options_of(inner, f"{above}{name} ")


@pytest.mark.parametrize("app", ["stator", "tasks"])
def test_every_subcommand_and_its_options_are_named(app: str) -> None:
    text = section(f"manage.py {app}")
    parser = load_command_class(app, app).create_parser("manage.py", app)
    common = {action for each in parser._actions for action in each.option_strings} | {
        "--json",
        "--database",
        "--schema",
    }
    # Those of tokens are on the page of the HTTP API.
    found = {name: options for name, options in options_of(parser) if not name.startswith("token ")}
    assert len(found) > 8
    for name, options in found.items():
        assert name.split()[-1] in text, name
        long = {option for option in options - common if option.startswith("--")}
        assert {option for option in long if not {option, option.replace("--no-", "--")} & words(text)} == set(), name


def words(text: str) -> set[str]:
    return set(re.findall(r"--[a-z-]+", text))


def test_every_metric_is_named_and_no_other() -> None:
    root = DOCS.parent / "stator"
    of_processes = re.findall(r'"(stator_\w+)"', (root / "extensions" / "metrics" / "measures.py").read_text())
    documented = {name for name in named(section("Metrics and probes")) if name.startswith("stator_")}
    assert {*gauges(), *of_processes, *(counts.name for counts in counters())} == documented


def test_every_check_is_named() -> None:
    folder = Path(checks.__file__).parent
    places = [*folder.glob("*.py"), *(folder.parent / "extensions").rglob("*.py")]
    source = "".join(path.read_text() for path in places)
    ids = set(re.findall(r"stator\.[EW]\d{3}", source))
    ids |= {f"stator.{code}" for code in re.findall(r'message\("([EW]\d{3})"', source)}
    ids |= {f"stator.W{number}" for number in re.findall(r"yield (\d{3}),", source)}
    assert ids == {name for name in named(section("Checks")) if name.startswith("stator.")}


def test_every_problem_is_explained_with_its_level() -> None:
    page = (DOCS / "guides" / "stuck.rst").read_text().partition("\nProblems of many objects\n")[2]
    explained = set(re.findall(r"^``(\w+)`` +(error|warning) ", page, re.MULTILINE))
    kinds = {(kind.code, kind.level) for kind in all_kinds() if kind.find or kind.read}
    assert explained == {*kinds, ("stale_pause", "warning")}


def test_every_reason_has_a_line_in_the_guide() -> None:
    # Tasks have a table of their own.
    of_every_object, heading, _ = (DOCS / "guides/stuck.rst").read_text().partition("\nWho serves a task\n")
    assert heading
    first = {kind.code for kind in KINDS if kind.sentences and kind.rows}
    # Said after other reasons only; and of one object, which a count of many has among those that wait.
    further = {"takes_event", "heeds_related", "steps_done"} | {"circle", "awaits_nobody"}
    assert set(re.findall(r"^``(\w+)``  ", of_every_object, re.MULTILINE)) == {"gone"} | first | further


def test_every_event_of_the_log_is_named_and_no_other() -> None:
    page = (DOCS / "reference" / "codes.rst").read_text().partition("Events in the log")[2]
    # Lines that begin a definition.
    page_names = set(re.findall(r"``((?:stator|tasks)\.\w+)``", "\n".join(re.findall(r"^``.*$", page, re.MULTILINE))))
    roots = (DOCS.parent / "stator", DOCS.parent / "tasks")
    source = "".join(path.read_text() for root in roots for path in root.rglob("*.py"))
    logged = re.findall(r"(?:logger|getLogger\([^)]*\))\.\w+\(\s*(?:[^()\"]*\s)?\"((?:stator|tasks)\.\w+)\"", source)
    assert set(logged) - page_names == set()
    assert {name for name in page_names if f'"{name}"' not in source} == set()
