"""The kinds of problems of schedules."""

from stator.models import ProblemKind
from tasks.extensions.schedules.problems import late_ticks, turns

SCHEDULE = "tasks.schedule"

KINDS = (
    ProblemKind(
        "ticks_failed",
        remedy="mend the function, then run it now",
        model=SCHEDULE,
        find=late_ticks.failed_ticks,
        level="error",
        signs=late_ticks.with_failed,
    ),
    ProblemKind(
        "schedule_late",
        remedy="open the page of the schedule, which says why",
        model=SCHEDULE,
        find=late_ticks.late_ticks,
        level="error",
        signs=late_ticks.maybe_late,
    ),
    ProblemKind(
        "throttled",
        remedy="wait, or raise the limit",
        model=SCHEDULE,
        find=turns.waiting_for_rates,
        level="warning",
        signs=turns.signs,
    ),
)
