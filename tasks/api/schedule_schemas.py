"""Schemas of schedules. As in :mod:`tasks.api.schemas`, durations are in seconds."""

from datetime import datetime
from typing import Annotated, Any

from ninja import Schema
from pydantic import AwareDatetime, Field

from stator.graph.backoff import MAX_SECONDS
from tasks.api.schemas import Body, showing, with_options
from tasks.models import Schedule

Duration = Annotated[float, Field(gt=0, le=MAX_SECONDS, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1, max_length=200)]


@with_options("says", "data", "metadata", "priority", "timeout", "max_attempts")
class ScheduleSettings(Body):
    """The timetable of a schedule, and the values of its tasks. Set either `period` or `cron`."""

    period: Duration | None = Field(None, description="Seconds between two ticks.", examples=[60])
    cron: str = Field("", max_length=100, description="A cron expression instead of a period.", examples=[""])
    zone: str = Field("UTC", max_length=64, description="The time zone of the cron expression.", examples=["UTC"])
    jitter: float = Field(
        0.0,
        ge=0,
        le=MAX_SECONDS,
        allow_inf_nan=False,
        description="Each tick is randomly up to this many seconds sooner or later.",
        examples=[15],
    )
    missed: Schedule.Missed = Field(
        Schedule.Missed.ONE,
        description="Which of several ticks fire that were due while no worker ran: skip, one or all.",
        examples=["one"],
    )
    deadline: Duration | None = Field(None, description="A tick that is later than this does not fire.", examples=[30])
    overlap: Schedule.Overlap = Field(
        Schedule.Overlap.DELAY,
        description="What happens to a tick while the task of the tick before it has not ended: delay, skip or allow.",
        examples=["delay"],
    )
    task_key: str = Field(
        "",
        max_length=200,
        description="The key of its tasks, with {tick} and {entity}; empty: generated.",
        examples=["refresh-{entity}-{tick}"],
    )
    rate_key: str = Field("", max_length=200, description="Schedules with one key share a rate.", examples=[""])
    rate_limit: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="The most ticks per second of a key.", examples=[None]
    )
    until: AwareDatetime | None = Field(None, description="No tick is due after this time.", examples=[None])
    enabled: bool = Field(True, description="false pauses it.", examples=[True])


class ScheduleIn(ScheduleSettings):
    """A schedule to create. Its queue, action, name and entity cannot be changed later."""

    queue: str = Field(description="The queue of its tasks.", examples=["encode"])
    action: Name = Field(description="The action of its tasks.", examples=["resize"])
    name: Name = Field(description="Its name; one name has one schedule for each entity.", examples=["refresh"])
    entity: str = Field("", max_length=200, description="What it is for, if there are many of a name.", examples=[""])


@showing(ScheduleIn)
class ScheduleOut(Schema):
    """A schedule."""

    id: int = Field(examples=[3])
    name: str = Field(examples=["refresh"])
    queue: str | None = Field(description="null: it calls a function of the site.", examples=["encode"])
    metadata: dict[str, Any] = Field(examples=[{"title": "abc"}])
    until: datetime | None = Field(examples=[None])
    state: str = Field(description="waiting, calling, failed, paused or ended.", examples=["waiting"])
    tick_index: int = Field(description="The number of its next tick.", examples=[12])
    planned: datetime | None = Field(
        description="When its next tick is due, with its jitter; null until a worker has planned it.",
        examples=["2030-01-31T12:00:00Z"],
    )
    fired: datetime | None = Field(description="When its latest tick fired.", examples=["2030-01-31T11:59:02Z"])
    fired_for: datetime | None = Field(description="When that tick was due.", examples=["2030-01-31T11:59:01Z"])
    dropped: int = Field(description="How many ticks never fired.", examples=[0])
    failed_ticks: int = Field(
        description="How many of its latest ticks have failed in a row; only of those that call a function.",
        examples=[0],
    )
    result: str = Field(description="How its latest tick ended, for people.", examples=["published"])
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

    deleted: int = Field(description="Its number.", examples=[3])
