"""``manage.py tasks schedules``: list schedules, run them now, pause and resume them."""

from typing import Any

from django.db.models import QuerySet

from stator.commands.answer import AddSubcommand, Answer, BadInput, Options, table
from stator.graph.durations import span
from stator.models import Now
from stator.texts import counted
from tasks.datetimes import aware
from tasks.rows.queues import home
from tasks.schedules.schedules import Schedule, ScheduleQuerySet

MAX_SCHEDULES = 1000
HEADS = ["schedule", "timetable", "next", "last fired", "ticks", "dropped", "status"]
DONE = {"run": "will fire now", "pause": "paused", "resume": "resumed"}


def add_subcommands(add: AddSubcommand) -> None:
    """Add ``schedules`` with its options."""
    named = "List schedules with their next and last ticks; run, pause or resume those named."
    listed = add("schedules", named, schedules)
    listed.add_argument("names", nargs="*", metavar="NAME", help="Only schedules of these names.")
    listed.add_argument("--entity", metavar="E", help="Only schedules of this entity.")
    changes = listed.add_mutually_exclusive_group()
    for name, help_text in (("run", "Fire one extra tick of each."), ("pause", "Stop their ticks."),
                            ("resume", "Resume from now on; missed ticks do not fire.")):  # fmt: skip
        changes.add_argument(f"--{name}", action="store_const", const=name, dest="change", help=help_text)


def schedules(options: Options) -> Answer:
    """List the schedules, or change those that are named."""
    names, entity, change = options["names"], options["entity"], options["change"]
    if change and not names:
        raise BadInput(f"--{change} needs the names of schedules; see tasks schedules")
    rows: ScheduleQuerySet = Schedule.objects.using(home())
    if names:
        rows = rows.filter(name__in=names)
    if entity is not None:
        rows = rows.filter(entity=entity)
    for name in names:
        if not rows.filter(name=name).exists():
            raise BadInput(
                f"there is no schedule {name!r}{f' of entity {entity!r}' if entity else ''}; see tasks schedules"
            )
    count = _change(rows, change) if change else 0
    found: QuerySet[Any] = rows.annotate(read_at=Now()).order_by("name", "entity")
    listed = list(found[: MAX_SCHEDULES + 1])
    data = [_as_json(schedule) for schedule in listed[:MAX_SCHEDULES]]
    lines = [f"{counted(count, 'schedule')} {DONE[change]}."] if change else []
    lines += table(HEADS, map(_row, listed[:MAX_SCHEDULES])) if listed else ["There are no schedules."]
    return Answer(data, lines + [f"There are more than {MAX_SCHEDULES:,}; name some."] * (len(listed) > MAX_SCHEDULES))


def _change(rows: ScheduleQuerySet, change: str) -> int:
    return int(rows.run_now() if change == "run" else rows.update(enabled=change == "resume"))


def _as_json(schedule: Schedule) -> dict[str, Any]:
    moments = {name: getattr(schedule, name) for name in ("planned", "fired", "until")}
    return {
        "name": schedule.name, "entity": schedule.entity, "action": schedule.action, "period": schedule.period,
        "cron": schedule.cron, "zone": schedule.zone, "enabled": schedule.enabled, "removed": schedule.removed,
        "tick_index": schedule.tick_index, "dropped": schedule.dropped,
        **{name: aware(moment).isoformat() if moment else None for name, moment in moments.items()},
    }  # fmt: skip


def _row(schedule: Any) -> list[str]:
    timetable = f"{schedule.cron} {schedule.zone}" if schedule.cron else f"every {schedule.period:g} s"
    now = schedule.read_at
    due = (schedule.planned - now).total_seconds() if schedule.planned else None
    fired = f"{span((now - schedule.fired).total_seconds())} ago" if schedule.fired else "never"
    status = "removed from the code" if schedule.removed else "on" if schedule.enabled else "paused"
    coming = "-" if due is None or status != "on" else f"in {span(due)}" if due > 0 else f"late by {span(-due)}"
    return [str(schedule), timetable, coming, fired, str(schedule.tick_index), str(schedule.dropped), status]
