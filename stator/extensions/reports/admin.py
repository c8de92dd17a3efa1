"""The reports and the history in the admin: their lists, entries on the page of an object, and errors in the search."""

from collections.abc import Iterator

from django.contrib import admin
from django.contrib.admin import AdminSite
from django.http import HttpRequest

from stator.admin.access import Pages
from stator.admin.links import list_of, page_of
from stator.admin.read_only import OfObjectAdmin, newest
from stator.admin.search import FURTHER
from stator.admin.timeline import add_entries
from stator.extensions.reports.models import History, Report
from stator.extensions.reports.timeline import entries
from stator.models import StatorModel
from stator.overview.sections import Cell
from stator.rows.keys import shown_text
from stator.rows.meta import model_of

# Errors that the search shows.
OF_ERRORS = 20


@admin.register(Report)
class ReportAdmin(OfObjectAdmin):
    """Reports of the latest attempts; a user who may view these rows sees tracebacks."""

    list_display = ("at", "model_label", "of_object", "state", "error", "message_line", "times", "worker")
    list_filter = ("at",)
    search_fields = ("=model_label", "=object_pk", "=fingerprint", "=error")
    ordering = ("-at", "-pk")

    @admin.display(description="message")
    def message_line(self, report: Report) -> str:
        """Return the beginning of the message."""
        return report.message[:100]


@admin.register(History)
class HistoryAdmin(OfObjectAdmin):
    """History of objects: moves, errors, manual actions."""

    list_display = ("at", "model_label", "of_object", "kind", "source", "to", "actor", "reason")
    list_filter = ("kind", "at")
    search_fields = ("=model_label", "=object_pk", "=actor", "=fingerprint")
    ordering = ("-pk",)


def _in_errors(site: AdminSite, request: HttpRequest, words: str) -> Iterator[tuple[Cell, ...]]:
    """Yield the objects whose latest error has the words, for models whose objects the user may all see."""
    pages = Pages(site, request)
    reports = newest(Report.objects.all(), "at").exclude(error="").order_by("-at")
    matching = reports.filter(message__stator_icontains=words) | reports.filter(error__stator_icontains=words)
    columns = ("model_label", "object_pk", "state", "error", "message")
    for label, key, state, error, message in matching.values_list(*columns)[:OF_ERRORS]:
        model = model_of(label)
        if model is not None and issubclass(model, StatorModel) and pages.sees_all(model):
            url = page_of(site, model, key)
            told = f"{error}: {message}"[:200]
            yield (
                Cell(model._meta.label, list_of(site, model)),
                Cell(shown_text(model, key), url),
                Cell(state),
                Cell(told),
            )


add_entries(entries)
FURTHER.append(_in_errors)
