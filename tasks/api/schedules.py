"""Endpoints for schedules: list, show, create, change, delete, and run now.

A schedule publishes tasks, so over HTTP it may only have an action that its queue lists in ``http_actions``. Schedules
that call a function of the site have no queue: only a token for all queues can read them, and no token can change them.
"""

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from ninja import Query
from ninja.responses import Status

from tasks.api.access import CONFIGURE, PUBLISH, QUERY, ApiRequest, page_of, queue_of
from tasks.api.documents import Endpoints
from tasks.api.errors import Conflict, Forbidden, NotFound
from tasks.api.schedule_schemas import ScheduleDeletedOut, ScheduleIn, ScheduleOut, ScheduleSettings, SchedulesOut
from tasks.api.schemas import Page, parameter
from tasks.exceptions import ActionNotAllowed
from tasks.models import Queue, Schedule
from tasks.queue.consumers import Consumer
from tasks.rows.databases import home

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
    found = _reached(consumer).filter(pk=pk).first()
    if found is None:
        raise NotFound(f"there is no schedule {pk}")
    return found


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
