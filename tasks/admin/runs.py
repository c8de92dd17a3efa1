"""Admin of claims: read-only."""

from django.contrib import admin
from django.db.models import F, Q, QuerySet
from django.http import HttpRequest

from stator.admin.read_only import SEARCHED, KeptAdmin
from tasks.failures import last_line
from tasks.models import Run

OPEN = {"held": "held now", "lost": "lost: its lease ran out"}
OUTCOMES = ("succeeded", "failed", "released", "canceled")


class OutcomeFilter(admin.SimpleListFilter):
    """A filter of claims by how they ended."""

    title = "outcome"
    parameter_name = "outcome"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin) -> list[tuple[str, str]]:
        """Return the outcomes, and claims that are held or lost."""
        return [*OPEN.items(), *((name, name) for name in OUTCOMES)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        """Return the claims with the chosen outcome."""
        value = self.value()
        if value in OUTCOMES:
            return queryset.filter(outcome=value)
        if value not in OPEN:
            return queryset
        held = Q(task__state_claim=F("token"))
        return (
            queryset.filter(held, outcome="")
            if value == "held"
            else queryset.filter(Q(outcome="lost") | ~held & Q(outcome=""))
        )


class RunAdmin(KeptAdmin):
    """Admin of claims: which worker had which task, until when, and with what outcome."""

    class Media:
        css = {"all": ("tasks/admin.css",)}

    list_display = ("id", "task", "worker", "shown_outcome", "shown_reason", "claimed", "lease_until", "ended")
    list_filter = (OutcomeFilter,)
    list_select_related = ("task",)
    search_fields = ("worker",)
    search_help_text = f"A worker's name or part of it, within the newest {SEARCHED:,} claims."
    ordering = ("-pk",)
    fields = (
        "task", "worker", "claimed", "lease_until", "ended", "shown_outcome", "shown_reason", "attempt",
        "version_at_claim", "token",
    )  # fmt: skip
    readonly_fields = ("shown_outcome", "shown_reason", "version_at_claim")

    @admin.display(description="outcome", ordering="outcome")
    def shown_outcome(self, run: Run) -> str:
        """Return how the claim ended, or whether it is still held or lost."""
        return OPEN["lost"] if run.timed_out else run.outcome or OPEN["held"]

    @admin.display(description="reason")
    def shown_reason(self, run: Run) -> str:
        """Return the worker's reason; for an error, its last line. The traceback is on the task's page."""
        return last_line(run.reason)
