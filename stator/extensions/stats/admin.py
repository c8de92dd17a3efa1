"""Pages of the admin site on statistics and samples."""

from django.contrib import admin

from stator.admin.read_only import KeptAdmin
from stator.extensions.stats.models import Depth, Stats


@admin.register(Stats)
class StatsAdmin(KeptAdmin):
    """Attempts per model, hour and edge."""

    list_display = ("hour", "model_label", "source", "to", "handled", "failed", "average", "longest")
    list_filter = ("hour",)
    search_fields = ("=model_label",)
    ordering = ("-hour", "-pk")

    @admin.display(description="average")
    def average(self, stats: Stats) -> float | None:
        """Return the average seconds in the state that was left; None if objects stayed."""
        return round(stats.seconds / stats.handled, 3) if stats.to and stats.handled else None


@admin.register(Depth)
class DepthAdmin(KeptAdmin):
    """Samples of the queue's depth."""

    list_display = ("minute", "model_label", "queued", "oldest", "failing", "moved")
    list_filter = ("minute",)
    search_fields = ("=model_label",)
    ordering = ("-minute", "-pk")
