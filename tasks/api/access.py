"""Authorization of API requests: tokens, verbs and queues.

Django's CSRF protection is off for the API. It guards requests that a browser authenticates by itself, with cookies.
The API ignores cookies, and only a program that knows the token sends the header with it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from django.db.models import BigIntegerField, CharField, Exists, Model, OuterRef, QuerySet, Subquery
from django.http import HttpRequest
from ninja.security import HttpBearer

from stator.claims import first_of_each
from stator.models import Now, StatorModel, how_far, shown_key
from stator.statements import Parameter
from stator.texts import text_problem
from tasks.api.bodies import check
from tasks.api.errors import Forbidden, NotFound, Unauthorized
from tasks.api.rate_limits import rates
from tasks.conf import load_settings
from tasks.extensions.api.models import Consumer, Verb, is_of, prefix_of
from tasks.messages import BIGINT
from tasks.models import Queue, Run, Task
from tasks.querysets import TaskQuerySet
from tasks.queue.attempt_counts import attempts_of
from tasks.queue.runs import holders
from tasks.queue.task_parts import KIND
from tasks.rows.databases import home
from tasks.rows.tables import RowT

Row = TypeVar("Row")

PREFIX, NAME, PK = Parameter("prefix", CharField()), Parameter("name", CharField()), Parameter("pk", BigIntegerField())


@dataclass(frozen=True, slots=True)
class LookedUp:
    """What was read with a consumer. ``sought``: the name of the queue, or the number of the task.

    ``queue``: that queue, or the task's. It has the database's time as ``read_at``, and ``in_reach`` says whether it is
    among the consumer's own queues. ``task`` has the name of the worker that holds it as ``holder``.
    """

    sought: object
    queue: Queue | None
    task: Task | None = None


def look_up(prefix: str, path: Mapping[str, object]) -> tuple[Consumer | None, LookedUp | None]:
    """Return the usable consumer whose token has this prefix, and what the path names, with one statement.

    The second is None if the path names neither a queue nor a task.
    """
    using, name, pk = home(), path.get("queue"), path.get("pk")
    if isinstance(name, str) and not text_problem(name):
        sought: dict[str, object] = {"prefix": prefix, "name": name}
        consumer, queue = first_of_each(using, "queue", lambda: (_consumers(using), _queue_of_name(using)), sought)
        return _as(Consumer, consumer), LookedUp(name, _as(Queue, queue))
    if isinstance(pk, int) and pk < BIGINT:
        sought = {"prefix": prefix, "pk": pk}
        consumer, task, queue = first_of_each(
            using, "task", lambda: (_consumers(using), _task(using), _queue_of_task(using)), sought
        )
        return _as(Consumer, consumer), LookedUp(pk, _as(Queue, queue), _as(Task, task))
    [consumer] = first_of_each(using, "consumer", lambda: (_consumers(using),), {"prefix": prefix})
    return _as(Consumer, consumer), None


def _as(kind: type[Row], value: object) -> Row | None:
    return value if isinstance(value, kind) else None


def _consumers(using: str) -> QuerySet[Consumer]:
    return Consumer.objects.using(using).usable().filter(prefix=PREFIX)


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


class ApiRequest(HttpRequest):
    """A request that a :class:`Token` has let in."""

    auth: Consumer


class Token(HttpBearer):
    """An authenticator for one verb, or for none. Access to the queue is checked later, by :func:`queue_of`."""

    def __init__(self, verb: Verb | None = None) -> None:
        super().__init__()
        self.verb = verb

    def __call__(self, request: HttpRequest) -> Consumer:
        scheme, _, token = request.META.get("HTTP_AUTHORIZATION", "").partition(" ")
        return self.authenticate(request, token.strip() if scheme.lower() == "bearer" else "")

    def authenticate(self, request: HttpRequest, token: str) -> Consumer:
        """Return the consumer of this token, with what the path of the request names."""
        consumer = consumer_of(token, request.resolver_match.kwargs if request.resolver_match else {})
        rates.take(consumer, consumer.requests_per_minute or load_settings().API_REQUESTS_PER_MINUTE)
        if self.verb is not None:
            check_verb(consumer, self.verb)
        return consumer


def consumer_of(token: str, path: Mapping[str, object]) -> Consumer:
    """Return the consumer of a token, with what a path names; raise ``Unauthorized`` if the token is not usable."""
    prefix = prefix_of(token)
    consumer, looked_up = look_up(prefix, path) if prefix else (None, None)
    # The token is compared even without a consumer, so that the answer takes equally long.
    if not is_of(consumer, token) or consumer is None:
        raise Unauthorized
    consumer.looked_up = looked_up
    return consumer


PUBLISH, CLAIM, QUERY, CONFIGURE = (Token(verb) for verb in Verb)

# Each endpoint of managed objects checks that the token names the model and the event.
OBJECTS = Token()


def check_verb(consumer: Consumer, verb: Verb) -> None:
    """Raise ``Forbidden`` unless the consumer may use this verb."""
    if not consumer.may(verb):
        raise Forbidden(f"this token may not {verb}; it may {', '.join(consumer.verbs) or 'do nothing'}")


def queue_of(consumer: Consumer, name: str) -> Queue:
    """Return the queue of this name; raise ``NotFound`` or ``Forbidden`` if the consumer may not use it."""
    check(name)
    looked_up = _taken(consumer, name)
    if looked_up is None:
        own: Queue | None = consumer.reach().filter(name=name).first()
    else:
        own = looked_up.queue if _reaches(consumer, looked_up.queue) else None
    if own is None and consumer.all_queues:
        raise NotFound(f"there is no queue {name!r}")
    if own is None:
        raise Forbidden(f"this token is not for the queue {name!r}")
    return own


def task_of(consumer: Consumer, pk: int) -> Task:
    """Return the task with this number; raise ``NotFound`` unless it is in a queue that the consumer may use."""
    looked_up = _taken(consumer, pk)
    if looked_up is None:
        task: Task | None = tasks_of(consumer).filter(pk=pk).first() if pk < BIGINT else None
    else:
        task = _looked_up_task(consumer, looked_up)
    if task is None:
        raise NotFound(f"there is no task {pk}")
    return task


def _taken(consumer: Consumer, sought: object) -> LookedUp | None:
    """Return what was read together with the consumer, but only once: a repeated call must read it again."""
    looked_up: LookedUp | None = consumer.__dict__.pop("looked_up", None)
    return looked_up if looked_up is not None and looked_up.sought == sought else None


def _looked_up_task(consumer: Consumer, looked_up: LookedUp) -> Task | None:
    task, queue = looked_up.task, looked_up.queue
    if task is None or queue is None or not _reaches(consumer, queue):
        return None
    task.queue = queue
    KIND.parts.read_states([task])
    return task


def _reaches(consumer: Consumer, queue: Queue | None) -> bool:
    return queue is not None and (consumer.all_queues or queue.in_reach)


def tasks_of(consumer: Consumer) -> TaskQuerySet:
    """Return all tasks in the queues that the consumer may use."""
    rows = KIND.parts.with_states(Task.objects.using(home()).select_related("queue"))
    return rows if consumer.all_queues else rows.filter(queue__in=consumer.reach())


def complete(tasks: list[Task], using: str) -> None:
    """Set what answers show of these tasks, with a query for all of each."""
    counted = attempts_of(tasks, using)
    workers = holders({task.pk: task.state_claim for task in tasks if task.state_claim is not None}, using)
    note_progress(tasks, using)
    for task in tasks:
        task.counted = counted[task.pk]
        task.holder = workers.get(task.pk)


def note_progress(tasks: Iterable[StatorModel], using: str) -> None:
    """Set ``looked_up_progress`` of the objects of one model whose attempts have said how far they are."""
    claims = {
        (task._meta.label_lower, str(task.pk)): task.state_claim for task in tasks if task.state_claim is not None
    }
    reached = how_far(using, claims)
    for task in tasks:
        if progress := reached.get((task._meta.label_lower, str(task.pk))):
            vars(task)["looked_up_progress"] = progress.as_dict()


def still_usable(consumer: Consumer, verb: Verb, queue: str) -> Queue:
    """Return the queue for a long request of the consumer; raise the refusal that a new request would get."""
    now, looked_up = look_up(consumer.prefix, {"queue": queue})
    if now is None or now.digest != consumer.digest:
        raise Unauthorized
    check_verb(now, verb)
    now.looked_up = looked_up
    return queue_of(now, queue)


def page_of(rows: QuerySet[RowT], limit: int, order: str = "pk") -> tuple[list[RowT], str | None]:
    """Return the first rows in an order, and the value after which the next page begins; None at the end."""
    page = list(rows.order_by(order)[: limit + 1])
    return page[:limit], shown_key(getattr(page[limit - 1], order)) if len(page) > limit else None
