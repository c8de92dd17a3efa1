"""The first statement of a request: it reads the consumer, and the queue or the task that the path names."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from django.db.models import BigIntegerField, CharField, Exists, Model, OuterRef, QuerySet, Subquery

from stator.claims import first_of_each
from stator.models import Now
from stator.statements import Parameter
from stator.texts import text_problem
from tasks.messages import BIGINT
from tasks.models import Queue, Run, Task
from tasks.queue.consumers import Consumer
from tasks.rows.databases import home

Row = TypeVar("Row")

PREFIX, NAME, PK = Parameter("prefix", CharField()), Parameter("name", CharField()), Parameter("pk", BigIntegerField())


@dataclass(frozen=True, slots=True)
class Found:
    """What was read with a consumer. ``sought``: the name of the queue, or the number of the task.

    ``queue``: that queue, or the task's. It has the database's time as ``read_at``, and ``in_reach`` says whether it is
    among the consumer's own queues. ``task`` has the name of the worker that holds it as ``holder``.
    """

    sought: object
    queue: Queue | None
    task: Task | None = None


def look_up(prefix: str, path: Mapping[str, object]) -> tuple[Consumer | None, Found | None]:
    """Return the usable consumer whose token has this prefix, and what the path names, with one statement.

    The second is None if the path names neither a queue nor a task.
    """
    using, name, pk = home(), path.get("queue"), path.get("pk")
    if isinstance(name, str) and not text_problem(name):
        sought: dict[str, object] = {"prefix": prefix, "name": name}
        consumer, queue = first_of_each(using, "queue", lambda: (_consumers(using), _queue_of_name(using)), sought)
        return _as(Consumer, consumer), Found(name, _as(Queue, queue))
    if isinstance(pk, int) and pk < BIGINT:
        sought = {"prefix": prefix, "pk": pk}
        consumer, task, queue = first_of_each(
            using, "task", lambda: (_consumers(using), _task(using), _queue_of_task(using)), sought
        )
        return _as(Consumer, consumer), Found(pk, _as(Queue, queue), _as(Task, task))
    [consumer] = first_of_each(using, "consumer", lambda: (_consumers(using),), {"prefix": prefix})
    return _as(Consumer, consumer), None


def _as(kind: type[Row], found: object) -> Row | None:
    return found if isinstance(found, kind) else None


def _consumers(using: str) -> QuerySet[Consumer]:
    usable: QuerySet[Consumer] = Consumer.objects.using(using).usable().filter(prefix=PREFIX)
    return usable


def _queues(using: str) -> QuerySet[Queue]:
    own: QuerySet[Model] = QuerySet(Consumer.queues.through, using=using).filter(consumer__prefix=PREFIX)
    return QuerySet(Queue, using=using).annotate(read_at=Now(), in_reach=Exists(own.filter(queue=OuterRef("pk"))))


def _queue_of_name(using: str) -> QuerySet[Queue]:
    return _queues(using).filter(name=NAME)


def _queue_of_task(using: str) -> QuerySet[Queue]:
    return _queues(using).filter(pk=Subquery(QuerySet(Task, using=using).filter(pk=PK).values("queue")[:1]))


def _task(using: str) -> QuerySet[Task]:
    runs: QuerySet[Run] = QuerySet(Run, using=using).filter(task=OuterRef("pk"), token=OuterRef("state_claim"))
    return QuerySet(Task, using=using).filter(pk=PK).annotate(holder=Subquery(runs.values("worker")[:1]))
