"""What the framework keeps beside the rows, to be read and never written."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from stator.admin.listing import BoundedPaginator


class KeptAdmin(admin.ModelAdmin):
    """An admin that only shows."""

    paginator = BoundedPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Workers write these rows."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """As above."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Workers delete these rows when they are old."""
        return False


class StatsAdmin(KeptAdmin):
    """Attempts per model, hour and edge."""

    list_display = ("hour", "model_label", "source", "to", "handled", "failed")
    list_filter = ("hour",)
    search_fields = ("=model_label",)
    ordering = ("-hour", "-pk")


class DepthAdmin(KeptAdmin):
    """How much was queued."""

    list_display = ("minute", "model_label", "queued", "oldest")
    list_filter = ("minute",)
    search_fields = ("=model_label",)
    ordering = ("-minute", "-pk")


class ReportAdmin(KeptAdmin):
    """What the latest attempts said; who may view these rows sees tracebacks."""

    list_display = ("at", "model_label", "object_pk", "state", "error", "message_line", "times", "worker")
    list_filter = ("at",)
    search_fields = ("=model_label", "=object_pk", "=fingerprint", "=error")
    ordering = ("-at", "-pk")

    @admin.display(description="message")
    def message_line(self, report: Any) -> str:
        """The beginning of the message."""
        return report.message[:100]


class HistoryAdmin(KeptAdmin):
    """What happened to objects: moves, errors, acts of people."""

    list_display = ("at", "model_label", "object_pk", "kind", "source", "to", "actor", "reason")
    list_filter = ("kind", "at")
    search_fields = ("=model_label", "=object_pk", "=actor", "=fingerprint")
    ordering = ("-pk",)
