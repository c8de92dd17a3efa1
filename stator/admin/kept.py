"""What the framework keeps beside the rows, to be read and never written."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from stator.admin.listing import AnyAddressAdmin, BoundedChangeList, BoundedPaginator, is_large
from stator.durations import span

# Models that the list of workers names.
MOST_NAMED = 5
# Of so many of the newest rows a search looks at each.
SEARCHED = 50_000


class KeptAdmin(AnyAddressAdmin):
    """An admin that only shows. The first of ``ordering`` has the newest rows first, and an index."""

    paginator = BoundedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    search_help_text = f"Whole values, in the newest {SEARCHED:,} rows."

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> Any:
        """A list that stays fast on large tables."""
        return BoundedChangeList

    def get_sortable_by(self, request: HttpRequest) -> Any:
        """Any column where there are few rows, for not all of them have an index for it."""
        return () if is_large(self.model._default_manager.all()) else super().get_sortable_by(request)

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """Those of the newest rows that match."""
        if search_term:
            first, *_ = self.ordering or ("-pk",)
            queryset = newest(queryset, str(first).removeprefix("-"))
        return super().get_search_results(request, queryset, search_term)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Workers write these rows."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """As above."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Workers delete these rows when they are old."""
        return False


def newest(queryset: Any, column: str) -> Any:
    """The rows that come first when the newest do, by a column that has an index; a few more at the end."""
    rows = queryset.model._base_manager.using(queryset.db).order_by(f"-{column}")
    last = rows.values_list(column, flat=True)[SEARCHED : SEARCHED + 1].first()
    return queryset if last is None else queryset.filter(**{f"{column}__gte": last})


class OfObjectAdmin(KeptAdmin):
    """What was said of single objects."""

    search_help_text = f'{KeptAdmin.search_help_text} All of one object: its model and key, as in "app.model 12".'

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """The rows of one object, or the newest rows that match."""
        label, _, key = search_term.strip().partition(" ")
        if "." in label and key:
            return queryset.filter(model_label=label.lower(), object_pk=key.strip()), False
        return super().get_search_results(request, queryset, search_term)


class StatsAdmin(KeptAdmin):
    """Attempts per model, hour and edge."""

    list_display = ("hour", "model_label", "source", "to", "handled", "failed", "average", "longest")
    list_filter = ("hour",)
    search_fields = ("=model_label",)
    ordering = ("-hour", "-pk")

    @admin.display(description="average")
    def average(self, stats: Any) -> float | None:
        """Seconds in the state that was left; nothing where objects stayed."""
        return round(stats.seconds / stats.handled, 3) if stats.to and stats.handled else None


class DepthAdmin(KeptAdmin):
    """How much was queued."""

    list_display = ("minute", "model_label", "queued", "oldest")
    list_filter = ("minute",)
    search_fields = ("=model_label",)
    ordering = ("-minute", "-pk")


class WorkerAdmin(KeptAdmin):
    """The worker processes of the last day."""

    list_display = (
        "id", "host", "pid", "version", "status", "started", "heard_of", "running", "handled", "lost", "serves",
    )  # fmt: skip
    readonly_fields = ("status",)
    search_fields = ("=id", "host")
    ordering = ("-heartbeat", "-pk")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """The workers with what the clock of the database says of them."""
        workers: Any = super().get_queryset(request)
        return workers.with_status()

    @admin.display(description="status", ordering="status")
    def status(self, worker: Any) -> str:
        """Alive, gone without a word, or stopped."""
        return str(worker.status)

    @admin.display(description="heartbeat", ordering="heartbeat")
    def heard_of(self, worker: Any) -> str:
        """How long ago it reported itself."""
        return f"{span(max(0.0, (worker.now - worker.heartbeat).total_seconds()))} ago"

    @admin.display(description="models")
    def serves(self, worker: Any) -> str:
        """What it works on, or how many models where those are many."""
        return ", ".join(worker.models) if len(worker.models) <= MOST_NAMED else f"{len(worker.models):,} models"


class ReportAdmin(OfObjectAdmin):
    """What the latest attempts said; who may view these rows sees tracebacks."""

    list_display = ("at", "model_label", "object_pk", "state", "error", "message_line", "times", "worker")
    list_filter = ("at",)
    search_fields = ("=model_label", "=object_pk", "=fingerprint", "=error")
    ordering = ("-at", "-pk")

    @admin.display(description="message")
    def message_line(self, report: Any) -> str:
        """The beginning of the message."""
        return report.message[:100]


class HistoryAdmin(OfObjectAdmin):
    """What happened to objects: moves, errors, acts of people."""

    list_display = ("at", "model_label", "object_pk", "kind", "source", "to", "actor", "reason")
    list_filter = ("kind", "at")
    search_fields = ("=model_label", "=object_pk", "=actor", "=fingerprint")
    ordering = ("-pk",)
