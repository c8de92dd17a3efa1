"""The documentation builds as a site without a warning; its links lead somewhere, and questions find their answers."""

import re
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

# The words for which somebody searches who knows Django, written before the pages: where the answer is, and under which
# heading.
QUESTIONS = [
    ("install", "tutorial", "1. Install"), ("start later", "how-to/start-later", "Start later"),
    ("run every night", "how-to/cron", "Run something every night"),
    ("send mail once", "how-to/mail-once", "Send a mail exactly once"),
    ("worker killed", "concepts/leases", "When a worker dies"), ("retry error", "concepts/attempts", "Errors"),
    ("test graph", "guides/testing", "The path of an object"),
    ("database connections", "guides/operating", "Connections of a worker"),
    ("object not moving", "guides/stuck", "What the codes mean"),
    ("large table", "how-to/adopt", "Adopt a table that has a status"),
    ("rename state", "how-to/change-a-graph", "Rename a state"), ("uninstall", "how-to/remove", "Remove the framework"),
    ("celery", "comparison", "Celery"), ("django tasks", "guides/django-tasks", "Django's Tasks framework"),
    ("deploy", "how-to/deploy", "Deploy without losing work"), ("systemd", "how-to/deploy", "Files to begin with"),
    ("stop a worker", "how-to/deploy", "Deploy without losing work"), ("sentry", "how-to/logging", "Sentry"),
    ("pgbouncer", "how-to/pgbouncer", "Run behind pgbouncer"),
    ("multiple databases", "how-to/databases", "Use several databases"),
    ("app named tasks", "faq", "My project has an app named tasks"), ("performance", "benchmarks", "Measured"),
]  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    def make(folder: Path) -> None:
        # Without the theme, which draws the contents of the whole site on each page and takes a third of the time.
        warnings = build(ROOT / "docs", folder, "-D", "html_theme=basic")
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


def test_a_question_finds_its_answer(site: Site) -> None:
    pages = site.reachable()
    assert [each for each in QUESTIONS if each[1] not in pages or each[2] not in site.page(each[1]).headings] == []
