"""Admin of schedules."""

import random
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest, HttpResponse

from stator.admin.actions import stator_retry
from stator.admin.confirmation import back, log, tell
from stator.admin.detail import offered
from stator.admin.fields import OF_JSON
from stator.admin.read_only import SEARCHED
from stator.graph.durations import span
from tasks.admin.newest import NewestAdmin
from tasks.datetimes import aware
from tasks.extensions.schedules.schedules import Schedule, ScheduleQuerySet, why_not, without_action
from tasks.extensions.schedules.timetable import Planned
from tasks.models import Task

# Ticks that are shown on each side of the present.
SHOWN = 10


@dataclass(frozen=True, slots=True)
class ShownTick:
    """A tick that fired: its number and its task, if that still exists."""

    index: int
    task: Task | None
    took: str = ""


def next_ticks(schedule: Schedule) -> list[datetime]:
    """Return when the next ticks are due, without jitter from the second one on; none if it is paused or has ended."""
    if not schedule.enabled or schedule.removed or schedule.planned is None or schedule.nominal is None:
        return []
    tick = Planned(aware(schedule.nominal), aware(schedule.planned))
    due, chance, timetable = [tick.at], random.Random(0), schedule.timetable
    until = aware(schedule.until) if schedule.until else None
    while len(due) < SHOWN:
        following = timetable.following(tick, chance)
        if following is None:
            break
        tick = following
        due.append(tick.nominal)
    return [moment for moment in due if until is None or moment <= until]


def latest_ticks(schedule: Schedule) -> list[ShownTick]:
    """Return the latest ticks and their tasks, newest first; none if the schedule calls a function. One statement."""
    if schedule.queue_id is None:
        return []
    indexes = range(schedule.tick_index - 1, max(-1, schedule.tick_index - 1 - SHOWN), -1)
    keys: dict[str | None, int] = {schedule.task_key_of(index): index for index in indexes}
    # The index on keys begins with the queue.
    tasks = Task.objects.using(schedule._state.db).filter(queue=schedule.queue_id, key__in=list(keys))
    by_index = {keys[task.key]: task for task in tasks[:SHOWN]}
    return [ShownTick(index, by_index.get(index), _took(by_index.get(index))) for index in indexes]


def _took(task: Task | None) -> str:
    if task is None or task.status not in ("completed", "errored", "canceled"):
        return ""
    return span((task.state_changed - task.created).total_seconds())


# The action of all managed models that pauses objects.
PAUSE = "stator_pause"


@admin.register(Schedule)
class ScheduleAdmin(NewestAdmin):
    """Admin of schedules: their ticks, and the actions of operators. Edits take effect at once."""

    list_display = (
        "name", "entity", "queue", "shown_timetable", "planned", "shown_result", "tick_index", "shown_enabled"
    )  # fmt: skip
    list_filter = ("enabled", "removed", "missed")
    list_select_related = ("queue",)
    search_fields = ("name", "entity", "action")
    search_help_text = f"An exact name; or part of a name, entity or action, within the newest {SEARCHED:,} schedules."
    raw_id_fields = ("queue",)
    formfield_overrides = OF_JSON
    readonly_fields = (
        "tick_index",
        "planned",
        "held_until",
        "fired",
        "fired_for",
        "dropped",
        "failed_ticks",
        "last_error",
        "removed",
        "created",
    )
    actions: Any = ("run_now", "pause", "resume")
    live_template = "admin/tasks/schedule/live.html"

    def __init__(self, model: type[Schedule], admin_site: admin.AdminSite) -> None:
        super().__init__(model, admin_site)
        # A schedule has one way to be paused: it stops planning ticks.
        self.actions = [act for act in self.actions or () if getattr(act, "__name__", "") != PAUSE]

    def exactly(self, words: str, using: str) -> Q:
        """Return the condition for schedules of exactly this name."""
        return Q(name=words)

    @admin.display(description="timetable")
    def shown_timetable(self, schedule: Schedule) -> str:
        """Return the period, or the cron expression and its zone; then the jitter."""
        return f"{schedule.every}, \N{PLUS-MINUS SIGN}{schedule.jitter:g} s" if schedule.jitter else schedule.every

    @admin.display(description="enabled", boolean=True, ordering="enabled")
    def shown_enabled(self, schedule: Schedule) -> bool:
        """Return whether the schedule is enabled and its function still exists in the code."""
        return schedule.enabled and not schedule.removed

    @admin.display(description="last result")
    def shown_result(self, schedule: Schedule) -> str:
        """Return how the latest tick ended."""
        return schedule.result

    def live_context(self, request: HttpRequest, obj: Schedule) -> dict[str, Any]:
        """Return what the page shows: the next ticks, the latest ones with their tasks, and the possible actions."""
        context = super().live_context(request, obj)
        lacks_action = bool(obj.enabled and without_action([obj], str(obj._state.db)))
        useful = [self.run_now] if obj.enabled and not (obj.removed or lacks_action) else []
        useful += [self.pause] if obj.enabled and not obj.removed else []
        useful += [] if obj.enabled else [self.resume]
        hidden = (stator_retry.__name__, PAUSE)
        framework = [act for act in context["stator_acts"] if act["name"] not in hidden]
        return context | {
            "stator_acts": [*offered(self, request, obj, useful), *framework],
            "schedule_lacks_action": lacks_action,
            "schedule_next": next_ticks(obj),
            "schedule_ticks": latest_ticks(obj),
            "schedule_missed": f"{obj.dropped:,}",
        }

    @admin.action(description="Run now", permissions=["change"])
    def run_now(self, request: HttpRequest, queryset: ScheduleQuerySet) -> HttpResponse | None:
        """Have each schedule fire one extra tick."""
        log(self, request, queryset, "Run now.")
        count = queryset.run_now()
        tell(self, request, count, "will fire now", why_not(queryset, count))
        return back(self, request)

    @admin.action(description="Pause", permissions=["change"])
    def pause(self, request: HttpRequest, queryset: ScheduleQuerySet) -> HttpResponse | None:
        """Stop all ticks of the selected schedules until they are resumed."""
        log(self, request, queryset, "Paused.")
        tell(self, request, queryset.update(enabled=False), "paused")
        return back(self, request)

    @admin.action(description="Resume", permissions=["change"])
    def resume(self, request: HttpRequest, queryset: ScheduleQuerySet) -> HttpResponse | None:
        """Resume from now on; ticks that were missed meanwhile do not fire."""
        log(self, request, queryset, "Resumed.")
        tell(self, request, queryset.update(enabled=True), "resumed")
        return back(self, request)
