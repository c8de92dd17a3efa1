"""Counts of the tasks of queues, in few statements for many queues; each count has a limit."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db.models import F, Model, QuerySet
from django.db.models.expressions import Combinable
from django.db.models.functions import Coalesce

from stator.graph.durations import seconds_of
from stator.models import Now
from stator.survey.estimates import Estimate, estimate
from stator.texts import count_text
from tasks.models import Queue, Task
from tasks.queue.expressions import CountOf, FirstOf, for_each
from tasks.queue.paces import MAX_ENDED, ended_lately, span_of
from tasks.rows.tables import queue_rows
from tasks.rows.tasks import NO_PART

# Waiting tasks are counted up to this number in each queue, other tasks up to it in all queues together.
MAX_COUNTED = 10_000


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one queue. Each number is text: ``10,000+`` if counting stopped early.

    ``waiting``: may be claimed. ``oldest``: seconds for which the first of them has waited. ``later``: not due yet.
    ``running``: claimed. ``dead``: dead letters. ``done``: when those that wait are done, at the pace of the last
    minutes; empty if that is not known. ``done_in``: the seconds until then.
    """

    waiting: str
    oldest: float | None
    later: str
    running: str
    dead: str
    done: str = ""
    done_in: float | None = None


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """The tasks of a queue that may be claimed: how many, and for how many seconds the first has waited.

    ``waiting`` is at most one more than ``MAX_COUNTED``. ``end``: when they are done, at the pace of the last minutes.
    """

    waiting: int = 0
    waited: float | None = None
    end: Estimate | None = None

    def end_of(self, queue: Queue) -> Estimate | None:
        """Return when they are done; None if nothing of the queue is claimed now."""
        return self.end if queue.gives_tasks else None


def add_figures(queues: Iterable[Queue], using: str) -> None:
    """Set ``figures`` on each queue."""
    figures = figures_of(queues, using)
    for queue in queues:
        vars(queue)["figures"] = figures.get(queue.pk)


def figures_of(queues: Iterable[Queue], using: str) -> dict[int, Figures]:
    """Return the figures of queues by primary key, in four statements.

    They use the index ``tasks_task_ready_in_queue``, and the framework's indexes of leased and resting rows.
    """
    tasks: QuerySet[Task] = QuerySet(Task, using=using)
    resting = tasks.filter(state_ready=False, state_claim=None)
    later = by_column(resting.filter(state="pending"))
    running = by_column(tasks.filter(state_claim__isnull=False, state="pending"))
    dead = by_column(resting.filter(NO_PART, state="errored"))
    known = {queue.pk: queue for queue in queues}
    figures_by_queue = {}
    for pk, line in lines(list(known), using, MAX_COUNTED + 1).items():
        end = line.end_of(known[pk])
        figures_by_queue[pk] = Figures(
            count_text(min(line.waiting, MAX_COUNTED), line.waiting > MAX_COUNTED),
            line.waited,
            count_text(later[0][pk], later[1]),
            count_text(running[0][pk], running[1]),
            count_text(dead[0][pk], dead[1]),
            end.short if end else "",
            end.seconds if end else None,
        )
    return figures_by_queue


def waiting_in(tasks: QuerySet[Task], limit: int) -> QuerySet[Task, object]:
    """Return since when each of the first tasks of a queue waits to be claimed. Index ``tasks_task_ready_in_queue``."""
    return _line_of(tasks).values(since=Coalesce("state_next_attempt", "state_changed"))[:limit]


def _line_of(tasks: QuerySet[Task]) -> QuerySet[Task]:
    # Ready tasks are pending and unclaimed. Conditions that say so would keep an index alone from counting them.
    return tasks.filter(state_ready=True).order_by("priority")


def lines(pks: list[int], using: str, read: int = 1) -> dict[int, QueueFigures]:
    """Return the line of each queue, by one statement.

    ``read``: the number of tasks, in the order of claims, among which the longest wait is looked for.
    """

    def figures(tasks: QuerySet[Task]) -> list[Combinable]:
        count = CountOf(_line_of(tasks).values("priority")[: MAX_COUNTED + 1])
        lately = ended_lately(tasks).values(since=F("state_changed"))[:MAX_ENDED]
        return [count, FirstOf(waiting_in(tasks, read)), CountOf(lately), FirstOf(lately), Now()]

    return {pk: _line(*values) for pk, *values in for_each(queue_rows(using), pks, figures)}


def _line(count: int, since: datetime | None, ended: int, first: datetime | None, now: datetime) -> QueueFigures:
    waited = None if since is None else seconds_of(now - since)
    moves = ended / span_of(ended, first, now, waited)
    end = estimate(min(count, MAX_COUNTED), now, moves=moves, more=count > MAX_COUNTED)
    return QueueFigures(count, waited, end)


def by_column(rows: QuerySet[Model], name: str = "queue") -> tuple[Counter[object], bool]:
    """Return the counts by queue, or by another column, and whether counting stopped at the limit."""
    values = list(rows.order_by().values_list(name, flat=True)[: MAX_COUNTED + 1])
    return Counter(values[:MAX_COUNTED]), len(values) > MAX_COUNTED
