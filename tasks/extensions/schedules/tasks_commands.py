"""``manage.py tasks schedules``: list schedules, run them now, pause and resume them, and change their action."""

from django.core.exceptions import ValidationError

from stator.commands.answer import AddSubcommand, Answer, BadInput, Options, table
from stator.graph.durations import span
from stator.models import moment_json
from stator.texts import JsonObject, counted
from tasks.extensions.schedules.rows import SLOWEST_RATE
from tasks.extensions.schedules.schedules import Schedule, ScheduleQuerySet, why_not
from tasks.rows.databases import home
from tasks.rows.tasks import READ_AT

MAX_SCHEDULES = 1000
HEADS = ["schedule", "timetable", "next", "last fired", "last result", "ticks", "dropped", "status"]
DONE = {"run": "will fire now", "pause": "paused", "resume": "resumed", "action": "changed", "rate-limit": "changed"}


def add_subcommands(add: AddSubcommand) -> None:
    """Add ``schedules`` with its options."""
    named = "List schedules with their next and last ticks; run, pause, resume or change those named."
    listed = add("schedules", named, schedules)
    listed.add_argument("names", nargs="*", metavar="NAME", help="Only schedules of these names.")
    listed.add_argument("--entity", metavar="E", help="Only schedules of this entity.")
    listed.add_argument("--failed", action="store_true", help="Only schedules whose latest ticks failed.")
    changes = listed.add_mutually_exclusive_group()
    for name, help_text in (("run", "Fire one extra tick of each."), ("pause", "Stop their ticks."),
                            ("resume", "Resume from now on; missed ticks do not fire.")):  # fmt: skip
        changes.add_argument(f"--{name}", action="store_const", const=name, dest="change", help=help_text)
    changes.add_argument("--action", metavar="ACTION", help="Have their ticks publish this action from now on.")
    rate_help = "The most ticks a second of all schedules with their rate_key."
    changes.add_argument("--rate-limit", type=float, metavar="N", help=rate_help)


def schedules(options: Options) -> Answer:
    """List the schedules, or change the named ones."""
    names, entity, action = options["names"], options["entity"], options["action"]
    given = {"action": action, "rate-limit": options["rate_limit"]}
    change = next((name for name, value in given.items() if value is not None), options["change"])
    if change and not names:
        raise BadInput(f"--{change} needs the names of schedules; see tasks schedules")
    rows: ScheduleQuerySet = Schedule.objects.using(home())
    if names:
        rows = rows.filter(name__in=names)
    if entity is not None:
        rows = rows.filter(entity=entity)
    if options["failed"]:
        rows = rows.filter(failed_ticks__gt=0)
    for name in names:
        if not rows.filter(name=name).exists():
            raise BadInput(
                f"there is no schedule {name!r}{f' of entity {entity!r}' if entity else ''}; see tasks schedules"
            )
    count = _change(rows, change, action, options["rate_limit"]) if change else 0
    listed = list(rows.annotate(**READ_AT).order_by("name", "entity")[: MAX_SCHEDULES + 1])
    data = [_as_json(schedule) for schedule in listed[:MAX_SCHEDULES]]
    lines = [f"{counted(count, 'schedule')} {DONE[change]}."] if change else []
    lines += [why] if change == "run" and (why := why_not(rows, count)) else []
    lines += table(HEADS, map(_row, listed[:MAX_SCHEDULES])) if listed else ["There are no schedules."]
    return Answer(data, lines + [f"There are more than {MAX_SCHEDULES:,}; name some."] * (len(listed) > MAX_SCHEDULES))


def _change(rows: ScheduleQuerySet, change: str, action: str, rate_limit: float) -> int:
    if change == "rate-limit":
        if not SLOWEST_RATE <= rate_limit < float("inf"):
            raise BadInput(f"--rate-limit {rate_limit:g} must be a number of at least {SLOWEST_RATE:g}")
        return int(rows.exclude(rate_key="").update(rate_limit=rate_limit))
    if change == "action":
        return _edit(rows.filter(queue__isnull=False), action)
    return int(rows.run_now() if change == "run" else rows.update(enabled=change == "resume"))


def _edit(rows: ScheduleQuerySet, action: str) -> int:
    """Change all schedules, or none if one of them cannot have the action."""
    for schedule in rows.iterator(chunk_size=MAX_SCHEDULES):
        schedule.action = action
        try:
            schedule.clean()
        except ValidationError as refused:
            raise BadInput(f"schedule {schedule}: {' '.join(refused.messages)}") from None
    changed = 0
    for schedule in rows.iterator(chunk_size=MAX_SCHEDULES):
        schedule.action = action
        schedule.save(update_fields=["action"])
        changed += 1
    return changed


def _as_json(schedule: Schedule) -> JsonObject:
    moments = {name: getattr(schedule, name) for name in ("planned", "fired", "until")}
    return {
        "name": schedule.name, "entity": schedule.entity, "action": schedule.action, "period": schedule.period,
        "cron": schedule.cron, "zone": schedule.zone, "enabled": schedule.enabled, "removed": schedule.removed,
        "tick_index": schedule.tick_index, "dropped": schedule.dropped, "result": schedule.result,
        "failed_ticks": schedule.failed_ticks,
        **{name: moment_json(moment) if moment else None for name, moment in moments.items()},
    }  # fmt: skip


def _row(schedule: Schedule) -> list[str]:
    now = schedule.read_at
    due = (schedule.planned - now).total_seconds() if schedule.planned else None
    fired = f"{span((now - schedule.fired).total_seconds())} ago" if schedule.fired else "never"
    status = "removed from the code" if schedule.removed else "on" if schedule.enabled else "paused"
    coming = "-" if due is None or status != "on" else f"in {span(due)}" if due > 0 else f"late by {span(-due)}"
    counts = str(schedule.tick_index), str(schedule.dropped)
    return [str(schedule), schedule.every, coming, fired, schedule.result, *counts, status]
