"""The section of the overview on what changed in the last hour."""

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.db.models import F, Model
from django.http import HttpRequest

from stator.admin.access import Pages
from stator.extensions.admin.sections import Cell, Section, add_section
from stator.graph.durations import seconds_of, span
from stator.models import StatorModel
from stator.rows.actions import Action, recent_actions
from stator.rows.clock import Now, moment_text
from stator.rows.deletions import Deleted
from stator.rows.meta import by_database, managed
from stator.survey.deletions import deletions, label_of
from stator.survey.looks import Looks

# The most actions that are shown.
ACTIONS = 20

HEADS = ("What", "Objects", "Model", "By", "When")


@add_section
def section_of_changes(request: HttpRequest) -> Section:
    """Return the manual actions on models that the user may view, and the deletions of each database."""
    pages, rows = Pages(admin.site, request), list[tuple[str, ...]]()
    for alias, models in by_database(managed(StatorModel.subclasses)).items():
        with Looks(alias) as looks:
            viewed = [model for model in models if pages.may_view(model)]
            rows += rows_of(actions(viewed, looks), deletions(models, looks))
    cells = [tuple(Cell(text) for text in row) for row in rows]
    nothing = "Nobody has changed objects by hand, and no retention has deleted any."
    return Section("changes", "What changed in the last hour", HEADS, cells, empty=nothing)


def actions(models: Iterable[type[Model]], looks: Looks) -> list[Any]:
    """Return the manual actions of the last hour on these models, the latest first, each with its ``age``."""
    labels = [model._meta.label_lower for model in models]
    rows = recent_actions(looks.using).filter(model_label__in=labels).annotate(age=Now() - F("at"))
    latest: list[object] = looks.at(Action, lambda: list(rows[:ACTIONS]), [])
    return latest


def rows_of(done: Iterable[Any], deleted: Iterable[Deleted]) -> list[tuple[str, ...]]:
    """Return lines of a table under ``HEADS``."""
    by_hand = [
        (
            f"undo of {one.undoes}" if one.undoes else one.kind, f"{one.count:,}", label_of(one.model_label),
            f"{one.actor or 'a program'}{f': {one.reason}' if one.reason else ''}", f"{span(seconds_of(one.age))} ago",
        )
        for one in done
    ]  # fmt: skip
    by_retention = [
        ("deleted", f"{one.count:,}", label_of(one.label), str(one.retention), f"since {moment_text(one.since)}")
        for one in deleted
    ]
    return [*by_hand, *by_retention]
