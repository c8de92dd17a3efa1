"""A queue over time, for its page: the last hour from its tasks, the last day and month from samples."""

from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from django.db.models import Q, QuerySet

from stator.admin.charts import Chart, chart
from stator.graph.durations import span
from stator.models import Now, local_moment, local_now
from stator.survey.flow import HOUR, Point, flows
from tasks.datetimes import aware
from tasks.models import Queue, Task
from tasks.queue.latest_errors import TaskFailure, errors_of
from tasks.rows.clock import Later
from tasks.rows.queues import label_of
from tasks.rows.tasks import NO_PART, TERMINAL

MINUTES = 60

# The most tasks of one kind that are read; if there are more, only samples are shown.
MAX_READ = 10_000

Moments = list[datetime]


@dataclass(frozen=True, slots=True)
class QueueFlow:
    """A queue over a period. A chart that is not known is None.

    ``ended``: tasks that ended, dead letters as bad.
    ``open``: tasks that had not ended; known only for the last hour.
    ``waiting``: tasks that a worker could claim, in the minute with the most of them; known only without ``open``.
    """

    period: str
    ended: Chart | None = None
    open: Chart | None = None
    waiting: Chart | None = None
    waits: Chart | None = None

    @property
    def longest_wait(self) -> str:
        """The longest wait of the first task in the last hour as text."""
        return span(self.waits.most) if self.waits else ""


def flow_of(queue: Queue, period: str = HOUR) -> QueueFlow:
    """Return a queue over a period, from the tasks in its own database; at most nine statements, each with a limit.

    Tasks with a retention of their own and parts of shared tasks are left out.
    """
    using = str(queue._state.db)
    known = _last_hour(queue, using) if period == HOUR else QueueFlow(period)
    if known.open is not None:
        return known
    now = local_now()
    [flow] = flows(using, [label_of(queue.name)], now, period).values()
    if period == HOUR:
        return replace(known, waiting=chart(flow.queued), waits=chart(flow.waits))
    return QueueFlow(period, ended=chart(flow.handled), waiting=chart(flow.queued))


def _last_hour(queue: Queue, using: str) -> QueueFlow:
    """Return the charts by minute that can be made from the tasks themselves.

    Indexes ``tasks_task_ended``, ``tasks_task_ready_in_queue``, ``st_lease``, ``st_rest``.
    """
    tasks: QuerySet[Task] = QuerySet(Task, using=using).filter(NO_PART, retention=None)
    [read] = QuerySet(Queue, using=using).filter(pk=queue.pk).values_list(Now())
    now = local_moment(read[0])
    ended = tasks.filter(queue=queue.pk, state__in=TERMINAL, state_changed__gte=Later(-60.0 * MINUTES))
    rows = list(ended.order_by("state_changed").values_list("state", "state_changed", "created")[: MAX_READ + 1])
    going = _published(tasks, queue.pk)
    if len(rows) > MAX_READ:
        return QueueFlow(HOUR)
    minutes = [now - timedelta(minutes=back) for back in range(MINUTES - 1, -1, -1)]
    dead = [aware(changed) for state, changed, _ in rows if state == "errored"]
    ends = [aware(changed) for _, changed, _ in rows]
    # A clock that was set back, or a program that writes columns, may have a task end before it was published.
    made = [min(created, changed) for _, changed, created in rows]
    begun = None if going is None else [aware(moment) for moment in [*going, *made]]
    still = None if begun is None else chart(_open(minutes, begun, ends))
    return QueueFlow(HOUR, chart(_ended(minutes, ends, dead)), still)


def _published(tasks: QuerySet[Task], queue: int) -> Moments | None:
    """Return when the tasks of a queue that have not ended were published; None if they are too many."""
    ready = tasks.filter(queue=queue, state_ready=True).order_by("priority")
    moments = list(ready.values_list("created", flat=True)[: MAX_READ + 1])
    # Their indexes have the tasks of all queues.
    for kind in (Q(state_claim__isnull=False), Q(state_ready=False, state_claim=None)):
        some = list(tasks.filter(kind, state="pending").values_list("created", "queue")[: MAX_READ + 1])
        moments += [created for created, of in some if of == queue]
        if len(some) > MAX_READ:
            return None
    return moments if len(moments) <= MAX_READ else None


def _ended(minutes: Moments, ends: Moments, dead: Moments) -> list[Point]:
    count, bad = (Counter(bisect_left(minutes, moment) for moment in moments) for moments in (ends, dead))
    return [Point(f"{moment:%H:%M}", count[number], bad[number]) for number, moment in enumerate(minutes)]


def _open(minutes: Moments, begun: Moments, ends: Moments) -> list[Point]:
    begun, ends = sorted(begun), sorted(ends)
    open_at = [bisect_right(begun, moment) - bisect_right(ends, moment) for moment in minutes]
    return [Point(f"{moment:%H:%M}", count) for moment, count in zip(minutes, open_at, strict=True)]


# Dead letters that are read, the latest first. Dead letters with one error are requeued together.
READ = 200

# The most dead letters, of all queues, that are searched for one queue's.
MAX_SEARCHED = 10_000


@dataclass(slots=True)
class DeadGroup:
    """Dead letters with errors of one place; ``latest`` is the error of the latest one."""

    latest: TaskFailure
    pks: list[int] = field(default_factory=list)


def dead_by_error(queue: Queue) -> list[DeadGroup]:
    """Return a queue's latest dead letters by the place of their last error, most first; three statements."""
    using = str(queue._state.db)
    # The framework's index of resting rows lacks the queue, so this reads the latest dead letters of all queues.
    dead = Task.objects.using(using).dead_letters()
    latest = dead.order_by("-state_next_attempt", "-state_changed").values_list("pk", "queue")[:MAX_SEARCHED]
    pks = [pk for pk, of in latest if of == queue.pk][:READ]
    errors, groups = errors_of(pks, using), dict[str, DeadGroup]()
    for pk in pks:
        error = errors.get(pk, TaskFailure("no error is stored"))
        groups.setdefault(error.group, DeadGroup(error)).pks.append(pk)
    return sorted(groups.values(), key=lambda group: -len(group.pks))
