"""The documentation builds as a site without a warning; its links lead somewhere, and questions find their answers."""

import re
import subprocess
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

import stator
import tasks
from stator import testing
from stator.conf import Settings
from stator.graph.options import OPTIONS
from tests.docs.site import ROOT, Site, build
from tests.installing import once

# What somebody who knows Django asks, written before the pages: where the answer is, under which heading, and the words
# for which they search.
QUESTIONS = [
    ("What do I need, and how do I install it?", "tutorial", "1. Install", "install"),
    ("How do I start the work on an object in an hour?", "how-to/start-later", "Start later", "start later"),
    ("How do I run something every night at three?", "how-to/cron", "Run something every night", "run every night"),
    ("How do I send a mail only once?", "how-to/mail-once", "Send a mail exactly once", "send mail once"),
    ("What happens when a worker is killed in the middle?", "concepts/leases", "When a worker dies", "worker killed"),
    ("How often is a failed handler retried, and how do I stop that?", "concepts/attempts", "Errors", "retry error"),
    ("How do I test a graph?", "guides/testing", "The path of an object", "test graph"),
    (
        "How many database connections does a worker take?",
        "guides/operating",
        "Connections of a worker",
        "database connections",
    ),
    ("Why is my object not moving?", "guides/stuck", "What the codes mean", "object not moving"),
    (
        "How do I add it to a table with 200,000 rows?",
        "how-to/adopt",
        "Adopt a table that has a status",
        "large table",
    ),
    ("How do I rename a state that rows are in?", "how-to/change-a-graph", "Rename a state", "rename state"),
    ("How do I get rid of it again?", "how-to/remove", "Remove the framework", "uninstall"),
    ("What does Celery do better?", "comparison", "Celery", "celery"),
    ("Does it run Django's own tasks?", "guides/django-tasks", "Django's Tasks framework", "django tasks"),
    ("How do I deploy without losing work?", "how-to/deploy", "Deploy without losing work", "deploy"),
    ("Which unit, image and settings do I begin with?", "how-to/deploy", "Files to begin with", "gunicorn"),
    ("How do I run a worker under systemd?", "how-to/deploy", "Files to begin with", "systemd"),
    ("How do I run a worker in Docker?", "how-to/deploy", "Files to begin with", "docker"),
    ("How do I stop a worker?", "how-to/deploy", "Deploy without losing work", "stop a worker"),
    ("How do I have it tried three times?", "concepts/attempts", "Errors", "retry three times"),
    ("How do errors get to Sentry?", "how-to/logging", "Sentry", "sentry"),
    ("Does it work behind pgbouncer?", "how-to/pgbouncer", "Run behind pgbouncer", "pgbouncer"),
    ("Can I use several databases?", "how-to/databases", "Use several databases", "multiple databases"),
    (
        "My project has an app named tasks already. What now?",
        "faq",
        "My project has an app named tasks",
        "app named tasks",
    ),
    ("How fast is it?", "benchmarks", "Measured", "performance"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    def make(folder: Path) -> None:
        warnings = build(ROOT / "docs", folder)
        assert warnings == ""

    return Site(once(tmp_path_factory, "site", make))


def test_no_link_is_dead(site: Site) -> None:
    assert list(site.dead_links()) == []


def test_every_public_name_has_its_docstring_in_the_reference(site: Site) -> None:
    documented = {anchor.rpartition(".")[2] for anchor in site.page("reference/python").anchors}
    # A version, and a type that is one of three documented ones.
    public = {*stator.__all__, *tasks.__all__, *testing.__all__} - {"__version__", "Outcome"}
    assert public - documented == set()


def test_every_setting_and_option_has_a_place_to_link_to(site: Site) -> None:
    options = {f"states-{name.replace('_', '-')}" for name in OPTIONS}
    settings = {f"stator-{option.name.lower().replace('_', '-')}" for option in fields(Settings)}
    assert options - site.page("reference").anchors == set()
    assert settings - site.page("reference/settings").anchors == set()
    assert {"queue-worker-retries", "schedule-period"} - site.page("reference/rows").anchors == set()


def test_programs_find_each_page_and_a_skill_with_each_option(site: Site) -> None:
    linked = set(re.findall(r"\]\((\S+)\.html\)", (site.folder / "llms.txt").read_text()))
    assert {page for page in site.reachable() if not site.contents.get(page)} - linked == set()
    skill = site.folder / "skill" / "stator"
    _, head, text = (skill / "SKILL.md").read_text().split("---\n", 2)
    assert yaml.safe_load(head)["name"] == skill.name
    assert set(re.findall(r"^- (\S+):", text, re.MULTILINE)) == {
        path.name for path in skill.iterdir() if path.name != "SKILL.md"
    }
    reference = (skill / "reference.txt").read_text()
    assert {name for name in OPTIONS if 'Example: "State(' not in reference or f'"{name}"\n' not in reference} == set()


def test_every_page_is_in_the_contents(site: Site) -> None:
    assert {path.relative_to(ROOT / "docs").with_suffix("").as_posix() for path in (ROOT / "docs").rglob("*.rst")} == (
        site.reachable()
    )


@pytest.mark.parametrize(("question", "page", "heading", "words"), QUESTIONS, ids=[each[0] for each in QUESTIONS])
def test_a_question_finds_its_answer(site: Site, question: str, page: str, heading: str, words: str) -> None:
    assert page in site.reachable()
    assert heading in site.page(page).headings


def test_the_script_says_how_it_is_used() -> None:
    ended = subprocess.run([ROOT / "bin" / "docs", "--help"], capture_output=True, text=True, check=True)
    assert "--serve" in ended.stdout
    wrong = subprocess.run([ROOT / "bin" / "docs", "--sreve"], capture_output=True, text=True, check=False)
    assert (wrong.returncode, wrong.stderr) == (2, "bin/docs: unknown argument --sreve; see bin/docs --help\n")
