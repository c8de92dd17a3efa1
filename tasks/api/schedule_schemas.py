"""Schemas of schedules. As in :mod:`tasks.api.schemas`, durations are in seconds."""

from datetime import datetime
from typing import Annotated, Any

from ninja import Schema
from pydantic import AwareDatetime, Field

from stator.graph.backoff import MAX_SECONDS
from tasks.api.schemas import Body, described, showing, with_options
from tasks.models import Schedule

Duration = Annotated[float, Field(gt=0, le=MAX_SECONDS, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1, max_length=200)]


@with_options("says", "data", "metadata", "priority", "timeout", "max_attempts")
class ScheduleSettings(Body):
    """The timetable of a schedule, and the values of its tasks. Set either `period` or `cron`."""

    period: Duration | None = described("Seconds between two ticks.", 60, None)
    cron: str = described("A cron expression instead of a period.", "", "", max_length=100)
    zone: str = described("The time zone of the cron expression.", "UTC", "UTC", max_length=64)
    jitter: float = described(
        "Each tick is randomly up to this many seconds sooner or later.",
        15,
        0.0,
        ge=0,
        le=MAX_SECONDS,
        allow_inf_nan=False,
    )
    missed: Schedule.Missed = described(
        "Which of several ticks fire that were due while no worker ran: skip, one or all.", "one", Schedule.Missed.ONE
    )
    deadline: Duration | None = described("A tick that is later than this does not fire.", 30, None)
    overlap: Schedule.Overlap = described(
        "What happens to a tick while the task of the tick before it has not ended: delay, skip or allow.",
        "delay",
        Schedule.Overlap.DELAY,
    )
    task_key: str = described(
        "The key of its tasks, with {tick} and {entity}; empty: generated.",
        "refresh-{entity}-{tick}",
        "",
        max_length=200,
    )
    rate_key: str = described("Schedules with one key share a rate.", "", "", max_length=200)
    rate_limit: float | None = described("The most ticks per second of a key.", None, None, gt=0, allow_inf_nan=False)
    until: AwareDatetime | None = described("No tick is due after this time.", None, None)
    enabled: bool = described("false pauses it.", True, True)


class ScheduleIn(ScheduleSettings):
    """A schedule to create. Its queue, action, name and entity cannot be changed later."""

    queue: str = described("The queue of its tasks.", "encode")
    action: Name = described("The action of its tasks.", "resize")
    name: Name = described("Its name; one name has one schedule for each entity.", "refresh")
    entity: str = described("What it is for, if there are many of a name.", "", "", max_length=200)


@showing(ScheduleIn)
class ScheduleOut(Schema):
    """A schedule."""

    id: int = Field(examples=[3])
    name: str = Field(examples=["refresh"])
    queue: str | None = described("null: it calls a function of the site.", "encode")
    metadata: dict[str, Any] = Field(examples=[{"title": "abc"}])
    until: datetime | None = Field(examples=[None])
    state: str = described("waiting, calling, failed, paused or ended.", "waiting")
    tick_index: int = described("The number of its next tick.", 12)
    planned: datetime | None = described(
        "When its next tick is due, with its jitter; null until a worker has planned it.", "2030-01-31T12:00:00Z"
    )
    fired: datetime | None = described("When its latest tick fired.", "2030-01-31T11:59:02Z")
    fired_for: datetime | None = described("When that tick was due.", "2030-01-31T11:59:01Z")
    dropped: int = described("How many ticks never fired.", 0)
    failed_ticks: int = described(
        "How many of its latest ticks have failed in a row; only of those that call a function.", 0
    )
    result: str = described("How its latest tick ended, for people.", "published")
    created: datetime = Field(examples=["2030-01-31T12:00:00Z"])

    @staticmethod
    def resolve_queue(schedule: Schedule) -> str | None:
        """The name of its queue."""
        return schedule.queue.name if schedule.queue is not None else None


class SchedulesOut(Schema):
    """A page of schedules; ``next`` goes into ``after`` for the next page."""

    schedules: list[ScheduleOut]
    next: str | None = Field(examples=[None])


class ScheduleDeletedOut(Schema):
    """The schedule that was deleted."""

    deleted: int = described("Its number.", 3)
