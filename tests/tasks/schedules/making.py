"""Schedules, and time that passes for them."""

from datetime import UTC, datetime

from stator.testing import drain
from tasks import periodic
from tasks.models import Schedule, Task
from tasks.testing import advance


def schedule_of(queue, **options):
    # Nobody runs the tasks.
    given = {"overlap": "allow", "queue": queue, "action": "act", "period": 60.0, **options}
    given = {"name": f"s{Schedule.objects.count()}", **given}
    return Schedule.objects.create(**{name: value for name, value in given.items() if value is not None})


def now():
    return datetime.now(UTC)


def seconds_until(moment):
    return (moment - now()).total_seconds()


def ticks_of(schedule):
    """The indexes of the ticks that were published, in order."""
    found = Task.objects.filter(key__startswith=f"{schedule.pk}:").order_by("pk")
    return [task.metadata["tick"] for task in found]


def go(seconds=0.0):
    """Let time pass, and do what is due then."""
    advance(seconds, Schedule, Task)
    drain(Schedule)


def declare(calls, **options):
    @periodic(**{"every": 60.0, "name": "flush", **options})
    def flush(tick):
        calls.append((tick.index, tick.key))

    return flush
