"""Who may do what: tokens, verbs and queues.

Django's protection against cross-site request forgery is of no use here and is off: it guards what a browser sends by
itself, cookies, while the header with a token is only ever sent by a program that knows the token. Cookies are not
looked at.
"""

from typing import Any

from django.db.models import Prefetch
from django.http import HttpRequest
from ninja.security import HttpBearer

from tasks.api.bodies import check
from tasks.api.errors import Forbidden, NotFound, Unauthorized
from tasks.api.rates import rates
from tasks.attempts import attempts_of
from tasks.conf import load_settings
from tasks.consumers import Consumer, Verb
from tasks.models import Queue, Task
from tasks.numbering import database_of, home
from tasks.querysets import TERMINAL


class Token(HttpBearer):
    """Lets a consumer in that may do one thing; what of it is done to which queue is asked later."""

    def __init__(self, verb: Verb) -> None:
        super().__init__()
        self.verb = verb

    def __call__(self, request: HttpRequest) -> Consumer:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        return self.authenticate(request, token.strip() if scheme.lower() == "bearer" else "")

    def authenticate(self, request: HttpRequest, token: str) -> Consumer:
        """The consumer of this token."""
        consumer = Consumer.objects.of_token(token)
        if consumer is None:
            raise Unauthorized
        rates.take(consumer, consumer.requests_per_minute or load_settings().API_REQUESTS_PER_MINUTE)
        check_verb(consumer, self.verb)
        return consumer


# What the status of a shared task follows from.
PARTS = ("whole", "state", "state_claim", "state_ready", "state_next_attempt")

PUBLISH, CLAIM, QUERY, CONFIGURE = (Token(verb) for verb in Verb)


def check_verb(consumer: Consumer, verb: Verb) -> None:
    """Refuse what the consumer may not do."""
    if not consumer.may(verb):
        raise Forbidden(f"this token may not {verb}; it may {', '.join(consumer.verbs) or 'do nothing'}")


def queue_of(consumer: Consumer, name: str) -> Queue:
    """The queue of this name, which the consumer may use."""
    check(name)
    found: Queue | None = consumer.reach().filter(name=name).first()
    if found is None and consumer.all_queues:
        raise NotFound(f"there is no queue {name!r}")
    if found is None:
        raise Forbidden(f"this token is not for the queue {name!r}")
    return found


def task_of(consumer: Consumer, pk: int) -> Task:
    """The task with this number, in a queue that the consumer may use."""
    using = database_of(pk)
    found: Task | None = tasks_of(consumer, using).filter(pk=pk).first() if using else None
    if found is None:
        raise NotFound(f"there is no task {pk}")
    return found


def tasks_of(consumer: Consumer, using: str) -> Any:
    """All tasks of one database in the queues that the consumer may use."""
    rows = Task.objects.using(using).select_related("queue").prefetch_related(parts())
    if using != home():
        spread = consumer.reach().exclude(databases=[]).values_list("name", "databases")
        return rows.filter(queue__name__in=[name for name, databases in spread if using in databases])
    return rows if consumer.all_queues else rows.filter(queue__in=consumer.reach())


def count_attempts(tasks: list[Any], using: str) -> None:
    """Give those tasks of one database that have ended their ``counted`` attempts, all of them at once."""
    ended = [task for task in tasks if task.state in TERMINAL]
    counted = attempts_of(ended, using)
    for task in ended:
        task.counted = counted.get(task.pk, 0)


def parts() -> Prefetch:
    """For ``prefetch_related``; a new one each time, for Django notes in it which database is meant."""
    return Prefetch("parts", Task.objects.only(*PARTS).order_by("pk"))


def still_usable(consumer: Consumer, verb: Verb) -> Consumer:
    """The consumer as it is now, for a request that takes long: refused as a new request would be."""
    now = Consumer.objects.usable().filter(pk=consumer.pk, digest=consumer.digest).first()
    if now is None:
        raise Unauthorized
    check_verb(now, verb)
    return now
