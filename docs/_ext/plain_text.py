"""The pages as plain text for programs: ``llms.txt``, and a skill for coding agents. Both are made after each build."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder
from sphinx.writers.text import TextTranslator

SKILL = "how-to/coding-agents"
# What is beside the skill, by the name of its file.
BESIDE = {
    "reference.txt": "reference",
    "settings.txt": "reference/settings",
    "commands.txt": "reference/commands",
    "codes.txt": "reference/codes",
    "testing.txt": "guides/testing",
    "stuck.txt": "guides/stuck",
    "queues.txt": "guides/queues",
    "actions.txt": "guides/actions",
    "schedules.txt": "guides/schedules",
    "django-tasks.txt": "guides/django-tasks",
    "http-api.txt": "guides/http-api",
}
HEAD = """---
name: stator
description: >-
  Writes, tests and operates Django code that uses django-stator: models with states and handlers, task queues,
  schedules and workers. Use it for code that imports stator or tasks, and when an object or a task does not move.
---

"""


def write(app: Sphinx, error: Exception | None) -> None:
    """Write the files into the site."""
    if error is not None or not isinstance(app.builder, StandaloneHTMLBuilder):
        return
    site = Path(app.outdir)
    (site / "llms.txt").write_text("\n".join(_contents(app)) + "\n")
    folder = site / "skill" / "stator"
    folder.mkdir(parents=True, exist_ok=True)
    beside = [f"- {name}: {app.env.titles[page].astext()}" for name, page in BESIDE.items()]
    text = _text(app, SKILL)
    (folder / "SKILL.md").write_text(f"{HEAD}{text}\nMore, in this folder:\n\n" + "\n".join(beside) + "\n")
    for name, page in BESIDE.items():
        (folder / name).write_text(_text(app, page))


def _contents(app: Sphinx) -> Iterator[str]:
    yield f"# {app.config.project}"
    yield f"\n> {_first(app, 'index')}\n"
    yield "The skill for coding agents: [skill/stator/SKILL.md](skill/stator/SKILL.md), with the reference beside it.\n"
    for page in _in_order(app.env, "index"):
        inner = app.env.toctree_includes.get(page)
        yield f"\n## {app.env.titles[page].astext()}\n" if inner else _line(app, page)


def _in_order(env: Any, above: str) -> Iterator[str]:
    for page in sorted(env.toctree_includes.get(above, []), key=lambda page: bool(env.toctree_includes.get(page))):
        yield page
        yield from _in_order(env, page)


def _line(app: Sphinx, page: str) -> str:
    return f"- [{app.env.titles[page].astext()}]({app.builder.get_target_uri(page)}): {_first(app, page)}"


def _first(app: Sphinx, page: str) -> str:
    paragraph = next(iter(app.env.get_doctree(page).findall(nodes.paragraph)), None)
    text = " ".join(paragraph.astext().split()) if paragraph else ""
    return text if page == "index" else f"{text.partition('. ')[0].rstrip('.:')}."


def _text(app: Sphinx, page: str) -> str:
    doctree = app.env.get_and_resolve_doctree(page, app.builder)
    for mark in list(doctree.findall(lambda node: isinstance(node, nodes.reference) and node.astext() == "¶")):
        mark.parent.remove(mark)
    translator = TextTranslator(doctree, app.builder)
    doctree.walkabout(translator)
    return str(translator.body)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the writer with Sphinx."""
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
