"""Samples of queues in the framework's statistics: how many tasks waited by minute, and how many ended by hour.

Each queue has a label of its own there. Its old samples are thinned, merged and deleted like the samples of models.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import IntegrityError, transaction
from django.db.models.expressions import Combinable
from django.utils import timezone

from stator.graph.durations import seconds_of
from stator.models import Depth, Now, Stats
from tasks.queue.expressions import CountOf, FirstOf, for_each
from tasks.queue.figures import waiting_in
from tasks.rows.queues import label_of
from tasks.rows.tables import Rows, queue_rows
from tasks.rows.tasks import NO_PART, TERMINAL

# The most queues that are sampled, and the most tasks that are counted in each: waiting, and ended in an hour.
QUEUES, WAITING, ENDED = 1000, 100_000, 1_000_000

# In the first minutes of an hour, the previous hour is counted once more, with its last tasks.
LATE = 3

HOUR = timedelta(hours=1)

# No queue has this name. Its sample says that all queues were sampled in a minute.
EVERY = ""


class Sample(NamedTuple):
    """A queue now: its key and name, waiting tasks, since when the first of them waits, and the time."""

    pk: int
    name: str
    waiting: int
    since: datetime | None
    now: datetime


def sample(using: str) -> bool:
    """Record the tasks of a database's queues; return False if this minute's samples exist already.

    Tasks that ended are counted from the beginning of the hour each time, so nothing is counted twice. Parts of shared
    tasks and tasks with a retention of their own are left out. Indexes ``tasks_task_ready_in_queue``,
    ``tasks_task_ended``.
    """
    moment = timezone.now()
    minute = moment.replace(second=0, microsecond=0)
    if not _is_first(using, minute):
        return False
    queues = list(_waiting(using))
    depths = {
        label_of(each.name): {"queued": each.waiting, "oldest": seconds_of(each.now - (each.since or each.now))}
        for each in queues
        if each.waiting
    }
    if depths:
        Depth.sample(using, depths)
    this = minute.replace(minute=0)
    for hour in (this - HOUR, this) if minute.minute < LATE else (this,):
        _count_ended(using, {each.pk: each.name for each in queues}, hour)
    return True


def _is_first(using: str, minute: datetime) -> bool:
    """Return whether nobody else samples the queues in this minute.

    Without ``get_or_create()``: packages that look for repeated queries take its ``get()`` for one of them.
    """
    marks = Depth.objects.using(using)
    mark = {"model_label": label_of(EVERY), "minute": minute}
    if marks.filter(**mark).exists():
        return False
    try:
        with transaction.atomic(using=using):
            marks.create(**mark, queued=0)
    except IntegrityError:
        return False
    return True


def _waiting(using: str) -> Iterator[Sample]:
    def figures(tasks: Rows) -> list[Combinable]:
        line = waiting_in(tasks, WAITING)
        return [CountOf(line), FirstOf(line), Now()]

    names = _names(using)
    for pk, waiting, since, now in for_each(queue_rows(using), list(names), figures):
        yield Sample(pk, names[pk], waiting, since, now)


def _count_ended(using: str, names: dict[int, str], hour: datetime) -> None:
    def figures(tasks: Rows) -> list[Combinable]:
        ended = tasks.filter(
            NO_PART, state__in=TERMINAL, retention=None, state_changed__gte=hour, state_changed__lt=hour + HOUR
        )
        dead = ended.filter(state="errored")
        return [CountOf(rows.order_by("state_changed").values("state_changed")[:ENDED]) for rows in (ended, dead)]

    counted = for_each(queue_rows(using), list(names), figures)
    Stats.put(using, hour, {label_of(names[pk]): (ended, dead) for pk, ended, dead in counted if ended})


def _names(using: str) -> dict[int, str]:
    return dict(queue_rows(using).order_by("pk").values_list("pk", "name")[:QUEUES])
