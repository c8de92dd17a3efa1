"""The section of the overview on what changed in the last hour."""

from django.contrib import admin
from django.http import HttpRequest

from stator.admin.access import Pages
from stator.models import StatorModel
from stator.overview.changes import HEADS, actions, deletions, rows_of
from stator.overview.looks import Looks
from stator.overview.sections import Cell, Section, add_section
from stator.rows.meta import by_database, managed


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
