"""Queues, tasks and what uses them, in the Django admin."""

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from stator.admin import StatorAdmin, add_section
from tasks.consumers import Consumer
from tasks.overview import queues
from tasks.schedules import Schedule

# Acts on so many rows at most are in the log of each of them.
LOGGED = 1000


@admin.register(Consumer)
class ConsumerAdmin(admin.ModelAdmin):
    """Programs that use the HTTP API; adding one shows its token, once."""

    list_display = ("name", "shown_prefix", "enabled", "shown_verbs", "expires", "used_minute")
    list_filter = ("enabled", "may_publish", "may_claim", "may_query", "may_configure")
    search_fields = ("name", "prefix")
    filter_horizontal = ("queues",)
    readonly_fields = ("shown_prefix", "used_minute", "created")
    show_full_result_count = False

    @admin.display(description="token")
    def shown_prefix(self, consumer: Consumer) -> str:
        """The part of the token that is no secret."""
        return f"tk_{consumer.prefix}_..." if consumer.prefix else "shown once it is saved"

    @admin.display(description="may")
    def shown_verbs(self, consumer: Consumer) -> str:
        """What it may do."""
        return ", ".join(consumer.verbs)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Give a new consumer its token; of an old one never write what the API counts meanwhile."""
        if change:
            obj.save(update_fields=[name for name in form.changed_data if name != "queues"])
            return
        obj.shown_token = obj.issue()
        super().save_model(request, obj, form, change)

    def response_add(self, request: HttpRequest, obj: Any, post_url_continue: str | None = None) -> HttpResponse:
        """The token on a page of its own, which goes into no cookie, session, cache or log."""
        context = {**self.admin_site.each_context(request), "title": "Token", "consumer": obj, "token": obj.shown_token}
        response = TemplateResponse(request, "admin/tasks/consumer/token.html", context)
        response["Cache-Control"] = "no-store"
        return response


@admin.register(Schedule)
class ScheduleAdmin(StatorAdmin):
    """Schedules: their ticks, and what an operator may do about them. What is edited takes effect at once."""

    list_display = ("name", "entity", "queue", "shown_timetable", "planned", "tick_index", "shown_enabled")
    list_filter = ("enabled", "removed", "missed")
    list_select_related = ("queue",)
    search_fields = ("name", "entity", "action")
    raw_id_fields = ("queue",)
    readonly_fields = ("tick_index", "planned", "held_until", "fired", "fired_for", "dropped", "removed", "created")
    actions = ("run_now", "pause", "resume")

    @admin.display(description="timetable")
    def shown_timetable(self, schedule: Schedule) -> str:
        """The period, or the cron expression and its zone."""
        every = f"{schedule.cron} {schedule.zone}" if schedule.cron else f"every {schedule.period:g} s"
        return f"{every}, \N{PLUS-MINUS SIGN}{schedule.jitter:g} s" if schedule.jitter else every

    @admin.display(description="enabled", boolean=True, ordering="enabled")
    def shown_enabled(self, schedule: Schedule) -> bool:
        """Whether it goes on: it is enabled, and the code has its function."""
        return schedule.enabled and not schedule.removed

    @admin.action(description="Run now", permissions=["change"])
    def run_now(self, request: HttpRequest, queryset: Any) -> None:
        """Have each fire one tick more."""
        self._tell(request, queryset, "Run now.", queryset.run_now(), "will fire now")

    @admin.action(description="Pause", permissions=["change"])
    def pause(self, request: HttpRequest, queryset: Any) -> None:
        """Let no tick fire until they are resumed."""
        self._tell(request, queryset, "Paused.", queryset.update(enabled=False), "paused")

    @admin.action(description="Resume", permissions=["change"])
    def resume(self, request: HttpRequest, queryset: Any) -> None:
        """Let them go on from now; what was missed meanwhile is forgotten."""
        self._tell(request, queryset, "Resumed.", queryset.update(enabled=True), "resumed")

    def _tell(self, request: HttpRequest, queryset: Any, act: str, count: int, done: str) -> None:
        LogEntry.objects.log_actions(request.user.pk, list(queryset[:LOGGED]), CHANGE, act)  # type: ignore[arg-type]
        noun = self.opts.verbose_name if count == 1 else self.opts.verbose_name_plural
        self.message_user(request, f"{count:,} {noun} {done}.", messages.SUCCESS if count else messages.WARNING)


add_section(queues)
