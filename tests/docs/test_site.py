"""The documentation builds as a site without a warning; its links lead somewhere, and questions find their answers."""

import subprocess
from pathlib import Path

import pytest

import stator
import tasks
from stator import testing
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
        "Adopt the mixin on a large table",
        "large table",
    ),
    ("How do I rename a state that rows are in?", "how-to/change-a-graph", "Rename a state", "rename state"),
    ("How do I get rid of it again?", "how-to/remove", "Remove the framework", "uninstall"),
    ("What does Celery do better?", "comparison", "Celery", "celery"),
    ("Does it run Django's own tasks?", "guides/django-tasks", "Django's Tasks framework", "django tasks"),
    ("How do I deploy without losing work?", "how-to/deploy", "Deploy without losing work", "deploy"),
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


def test_every_page_is_in_the_contents(site: Site) -> None:
    assert {path.relative_to(ROOT / "docs").with_suffix("").as_posix() for path in (ROOT / "docs").rglob("*.rst")} == (
        site.reachable()
    )


def test_there_are_twenty_questions() -> None:
    assert len({question for question, *_ in QUESTIONS}) == 20


@pytest.mark.parametrize(("question", "page", "heading", "words"), QUESTIONS, ids=[each[0] for each in QUESTIONS])
def test_a_question_finds_its_answer(site: Site, question: str, page: str, heading: str, words: str) -> None:
    assert page in site.reachable()
    assert heading in site.page(page).headings


# What is wrong in a page, and what the build says of it.
MISTAKES = {
    "`Gone <gone.rst>`_": "unknown document",
    "`Beside <../nothing.md>`_": "dead link: ../nothing.md",
    "Nowhere_": "Unknown target name",
    ".. image:: gone.png": "image file not readable",
    "=== ===\ntoolong b\n=== ===": "Malformed table",
    ".. toctree::\n\n   gone": "nonexisting document",
    ":ref:`gone`": "undefined label",
}
LINKS = "<a href='#gone'></a><a href='no.html'></a>"


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> tuple[Site, list[str]]:
    """Return a site with one mistake in each page, and the lines of warnings."""
    folder = tmp_path_factory.mktemp("wrong")
    source = folder / "docs"
    source.mkdir()
    contents = "".join(f"   page-{number}\n" for number in range(len(MISTAKES)))
    (source / "index.rst").write_text(f"Title\n=====\n\n.. toctree::\n\n{contents}\n.. raw:: html\n\n   {LINKS}\n")
    for number, text in enumerate(MISTAKES):
        (source / f"page-{number}.rst").write_text(f"Page {number}\n======\n\n{text}\n")
    (source / "alone.rst").write_text("Alone\n=====\n\n.. autoclass:: stator.Gone\n")
    warnings = build(source, folder / "site")
    return Site(folder / "site"), warnings.splitlines()


@pytest.mark.parametrize(("number", "text"), [*enumerate(MISTAKES)], ids=MISTAKES.values())
def test_a_mistake_fails_the_build(wrong: tuple[Site, list[str]], number: int, text: str) -> None:
    _, warnings = wrong
    assert [line for line in warnings if f"page-{number}.rst" in line and MISTAKES[text] in line]


def test_a_page_that_no_contents_list_fails_the_build(wrong: tuple[Site, list[str]]) -> None:
    _, warnings = wrong
    assert [line for line in warnings if "alone.rst" in line and "isn't included in any toctree" in line]


def test_a_name_that_the_code_does_not_have_fails_the_build(wrong: tuple[Site, list[str]]) -> None:
    _, warnings = wrong
    assert [line for line in warnings if "failed to import 'Gone'" in line]


def test_a_link_to_no_page_and_one_to_no_place_are_found(wrong: tuple[Site, list[str]]) -> None:
    site, _ = wrong
    assert {"index.html: #gone", "index.html: no.html"} <= set(site.dead_links())
    assert "alone" not in site.reachable()


def test_the_script_says_how_it_is_used() -> None:
    ended = subprocess.run([ROOT / "bin" / "docs", "--help"], capture_output=True, text=True, check=True)
    assert "--serve" in ended.stdout
    wrong = subprocess.run([ROOT / "bin" / "docs", "--sreve"], capture_output=True, text=True, check=False)
    assert (wrong.returncode, wrong.stderr) == (2, "bin/docs: unknown argument --sreve; see bin/docs --help\n")
