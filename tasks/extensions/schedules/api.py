"""Endpoints for schedules: list, show, create, change, delete, and run now.

A schedule publishes tasks, so over HTTP it may only have an action that its queue lists in ``http_actions``. Schedules
that call a function of the site have no queue: only a token for all queues can read them, and no token can change them.
"""

from datetime import datetime
from typing import Annotated, Any

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from ninja import Query, Schema
from ninja.responses import Status
from pydantic import AwareDatetime, Field

from stator.graph.backoff import MAX_SECONDS
from tasks.api.access import CONFIGURE, PUBLISH, QUERY, ApiRequest, page_of, queue_of
from tasks.api.documents import Endpoints
from tasks.api.errors import Conflict, Forbidden, NotFound
from tasks.api.schemas import Body, Page, described, parameter, showing, with_options
from tasks.exceptions import ActionNotAllowed
from tasks.extensions.api.models import Consumer
from tasks.models import Queue, Schedule
from tasks.rows.databases import home

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


router = Endpoints(tags=["schedules"])


class ScheduleFilters(Page):
    """Filters for schedules; a schedule must match all of them."""

    queue: str | None = parameter("Schedules that publish into this queue.", "encode")
    name: str | None = parameter("Schedules of this name.", "refresh")
    entity: str | None = parameter("Schedules of this entity.", "shop-7")


@router.at("GET", "schedules", QUERY, SchedulesOut, "List schedules", 404)
def list_schedules(request: ApiRequest, filters: Query[ScheduleFilters]) -> dict[str, object]:
    """Return the schedules of the queues that this token may use, page by page."""
    rows = _reached(request.auth).filter(pk__gt=filters.after)
    if filters.queue is not None:
        rows = rows.filter(queue=queue_of(request.auth, filters.queue))
    for name in ("name", "entity"):
        if (value := getattr(filters, name)) is not None:
            rows = rows.filter(**{name: value})
    page, following = page_of(rows, filters.limit)
    return {"schedules": page, "next": following}


@router.at("POST", "schedules", CONFIGURE, ScheduleOut, "Create a schedule", 404, 409, statuses=[201])
def create_schedule(request: ApiRequest, payload: ScheduleIn) -> Status[Schedule]:
    """The queue must list the action in `http_actions`. A name has at most one schedule for each entity."""
    values = payload.dict()
    queue = queue_of(request.auth, values.pop("queue"))
    _refuse_unlisted(queue, payload.action)
    schedule = Schedule(queue=queue, **values)
    schedule.full_clean(validate_unique=False, validate_constraints=False)
    try:
        with transaction.atomic():
            schedule.save()
    except IntegrityError as error:
        raise Conflict(f"there is a schedule {str(schedule)!r} already", "exists") from error
    return Status(201, _reached(request.auth).get(pk=schedule.pk))


@router.at("GET", "schedules/{int:pk}", QUERY, ScheduleOut, "Show a schedule")
def show_schedule(request: ApiRequest, pk: int) -> Schedule:
    """Return its timetable, its next tick and its latest one."""
    return _schedule_of(request.auth, pk)


@router.at("PATCH", "schedules/{int:pk}", CONFIGURE, ScheduleOut, "Change a schedule")
def change_schedule(request: ApiRequest, pk: int, payload: ScheduleSettings) -> Schedule:
    """Change the given values; the others stay. `enabled: false` pauses it. A change takes effect at once.

    If the code of the site declares the schedule, the next change of that declaration overwrites these values.
    """
    schedule = _changeable(request.auth, pk)
    changes = payload.dict(exclude_unset=True)
    for name, value in changes.items():
        setattr(schedule, name, value)
    schedule.full_clean(validate_unique=False, validate_constraints=False)
    schedule.save(update_fields=list(changes))
    return _schedule_of(request.auth, pk)


@router.at("DELETE", "schedules/{int:pk}", CONFIGURE, ScheduleDeletedOut, "Delete a schedule")
def delete_schedule(request: ApiRequest, pk: int) -> dict[str, object]:
    """Its tasks stay. If the code of the site declares the schedule, the next start of a worker creates it again."""
    _changeable(request.auth, pk).delete()
    return {"deleted": pk}


@router.at("POST", "schedules/{int:pk}/run", PUBLISH, ScheduleOut, "Run a schedule now", 409)
def run_schedule(request: ApiRequest, pk: int) -> Schedule:
    """Fire one extra tick now; the timetable stays. If the schedule is paused, it answers 409."""
    schedule = _changeable(request.auth, pk)
    if not schedule.run_now():
        raise Conflict(f"schedule {schedule} is paused; enable it first", "paused")
    return _schedule_of(request.auth, pk)


def _reached(consumer: Consumer) -> QuerySet[Schedule]:
    rows: QuerySet[Schedule] = Schedule.objects.using(home()).select_related("queue")
    return rows if consumer.all_queues else rows.filter(queue__in=consumer.reach())


def _schedule_of(consumer: Consumer, pk: int) -> Schedule:
    schedule = _reached(consumer).filter(pk=pk).first()
    if schedule is None:
        raise NotFound(f"there is no schedule {pk}")
    return schedule


def _changeable(consumer: Consumer, pk: int) -> Schedule:
    """Return a schedule that programs may change, because they may publish its action."""
    schedule = _schedule_of(consumer, pk)
    if schedule.queue is None:
        raise Forbidden(f"schedule {schedule} calls a function of the site; change it in the admin")
    _refuse_unlisted(schedule.queue, schedule.action)
    return schedule


def _refuse_unlisted(queue: Queue, action: str) -> None:
    if action not in queue.http_actions:
        raise ActionNotAllowed(
            f"queue {queue.name} does not list action {action!r} in http_actions, so no schedule of it can be changed "
            "over HTTP"
        )
