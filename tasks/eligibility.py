"""Which tasks a worker may claim: the conditions of each claim, which ``explain`` asks one by one."""

from collections import defaultdict
from collections.abc import Callable
from functools import lru_cache, reduce
from operator import or_
from typing import Any

from django.apps import apps
from django.db import connections
from django.db.models import (
    BooleanField,
    Case,
    ExpressionWrapper,
    F,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    TextField,
    Value,
    When,
)
from django.db.models.fields.json import KeyTransform
from django.db.models.functions import Cast, Coalesce, Least, Now, StrIndex
from django.db.models.lookups import Exact, GreaterThan

from tasks.conf import LONGEST, Settings, load_settings
from tasks.expressions import Later, is_any
from tasks.registry import DJANGO, registry


def picker(queue: Any, worker: str, metadata: dict[str, Any], settings: Settings) -> Callable[[Any], Any]:
    """From rows that may be claimed at all those of a queue that this worker may claim now, most urgent first."""

    def pick(rows: QuerySet[Any]) -> QuerySet[Any]:
        eligible = rows.filter(attempts_left(settings, queue), allowed(worker), queue=queue)
        for had in had_by(worker, rows, queue):
            eligible = eligible.filter(~had)
        if metadata:
            eligible = with_metadata(eligible, metadata)
        if queue.exclusive:
            eligible = eligible.filter(~value_is_held(rows), ~is_any(_before(eligible)))
        return _in_line(eligible)

    return pick


def in_line(queue: Any, metadata: dict[str, Any]) -> Callable[[Any], Any]:
    """From rows that may be claimed at all those of a queue, most urgent first; those with this metadata are sought."""
    sought = ExpressionWrapper(Q(metadata__contains=metadata), BooleanField())
    return lambda rows: _in_line(rows.filter(queue=queue).annotate(sought=sought))


def _in_line(rows: QuerySet[Any]) -> QuerySet[Any]:
    return rows.order_by("priority", names_nobody(), "pk")


def effective(name: str, setting: Any, queue: Any = None) -> Any:
    """A limit of each task: its own, else its queue's, else the setting's; with ``queue`` given that is not joined."""
    if queue is not None:
        own = getattr(queue, name)
        return Coalesce(F(name), Value(setting if own is None else own))
    return Coalesce(F(name), F(f"queue__{name}"), Value(setting))


def attempts_left(settings: Settings, queue: Any = None) -> Q:
    """Tasks that may be attempted once more."""
    return Q(state_attempts__lt=effective("max_attempts", settings.MAX_ATTEMPTS, queue))


def allowed(worker: str) -> Q:
    """Tasks that anybody may claim, or that name this worker."""
    return Q(worker_ids=[]) | Q(_names(worker))


def names_nobody() -> Case:
    """By this those that name workers come first: of those that a worker may claim, the ones that name it."""
    return Case(When(worker_ids=[], then=Value(1)), default=Value(0))


def had_by(worker: str, rows: QuerySet[Any], queue: Any) -> list[Q]:
    """What keeps a worker from a task that it has had: claims of this task, and of other parts of a shared one.

    Whoever succeeded with, or runs, one part gets no other, whatever the queue says of those that failed.
    """
    runs: QuerySet[Any] = QuerySet(rows.model.runs.rel.related_model, using=rows.db).filter(worker=worker)
    succeeded = Q(outcome="succeeded", task__state="completed") | Q(task__state_claim=F("token"))
    of_parts = runs.filter(task__whole=OuterRef("whole"))
    if queue.same_worker_again:
        return [_of_shared(of_parts.filter(succeeded))]
    again = queue.worker_retries
    of_task = runs.filter(task=OuterRef("pk"), version=OuterRef("state_version"))
    failed = Q(version=F("task__state_version"))
    return [Q(is_any(of_task[again : again + 1])), _of_shared(of_parts.filter(succeeded | failed))]


def _of_shared(runs: QuerySet[Any]) -> Q:
    return ~Q(whole=None) & Q(is_any(runs))


def with_metadata(rows: Any, metadata: dict[str, Any]) -> Any:
    """The tasks of a queryset that have all of these pairs; on PostgreSQL by the GIN index."""
    if connections[rows.db].vendor == "postgresql":
        return rows.filter(metadata__contains=metadata)
    for number, (name, value) in enumerate(metadata.items()):
        # Not by lookups such as metadata__name: the name may be anything, even that of a lookup.
        rows = rows.alias(**{f"tasks_value_{number}": KeyTransform(name, "metadata")})
        rows = rows.filter(**{f"tasks_value_{number}": value})
    return rows


def value_is_held(rows: QuerySet[Any]) -> Any:
    """Whether a task of the same value runs; the unique index of the constraint answers."""
    every: QuerySet[Any] = QuerySet(rows.model, using=rows.db)
    return is_any(
        every.filter(queue=OuterRef("queue"), exclusive_value=OuterRef("exclusive_value"), state_claim__isnull=False)
    )


def lease_end(lease: float | None, longest: float, settings: Settings, queue: Any) -> Any:
    """The moment until which a task that is claimed now is held: no later than its timeout."""
    wanted = Value(lease) if lease is not None else effective("lease", settings.LEASE, queue)
    timeout = effective("timeout", LONGEST if settings.TIMEOUT is None else settings.TIMEOUT, queue)
    return Later(Least(wanted, timeout, Value(longest)))


def renewed_end(
    lease: float | None, longest: float, settings: Settings, queues: QuerySet[Any], run: QuerySet[Any]
) -> Any:
    """The moment until which a task is held whose holder says now that it goes on: as long as it asks, or asked before.

    ``run``: its claim, as it is kept.
    """
    usual = _of_queue("lease", settings.LEASE, queues)
    wanted = Coalesce(Subquery(run.values("lease")[:1]), usual) if lease is None else Value(lease)
    timeout = _of_queue("timeout", LONGEST if settings.TIMEOUT is None else settings.TIMEOUT, queues)
    return Least(Later(Least(wanted, Value(longest))), Later(timeout, since=F("state_attempted")))


def _of_queue(name: str, setting: Any, queues: QuerySet[Any]) -> Any:
    """As :func:`effective`, for an UPDATE, which joins nothing."""
    return Coalesce(F(name), Subquery(queues.filter(pk=OuterRef("queue")).values(name)[:1]), Value(setting))


def open_to_process(worker_id: str, held: Q) -> Q:
    """Tasks that a worker process may claim now: those of which the code here has the action for their queue.

    A queue for programs elsewhere has tasks of theirs, which may name a function that is here for another queue. A
    queue without such programs is served whole, so that a task whose action is gone says so. ``held``: tasks that
    pauses hold, and which then hold up nothing. A worker for some queues alone gets no tasks of others.
    """
    here = frozenset((name, queue) for name, by_queue in registry.items() for queue in by_queue)
    found = _open_to_process(worker_id, load_settings(), here, held)
    queues = _chosen.get(worker_id)
    return found & Q(queue__name__in=queues) if queues else found


def choose_queues(worker_id: str, queues: tuple[str, ...]) -> None:
    """Have the worker with this id claim tasks of these queues alone."""
    _chosen[worker_id] = queues


# By the id of a worker; one that serves all queues is not in it.
_chosen: dict[str, tuple[str, ...]] = {}


@lru_cache(maxsize=32)
def _open_to_process(worker_id: str, settings: Settings, actions: frozenset[tuple[str, str]], held: Q) -> Q:
    rows: QuerySet[Any] = QuerySet(apps.get_model("tasks", "Task"))
    # Of the queue of the task that they are before, which so is joined once.
    whole, here = Exact(OuterRef("queue__actions_elsewhere"), Value(False)), _is_here(actions, OuterRef("queue__name"))
    ours = Q(elsewhere_only=False)
    before = rows.filter(~held, ours, Q(whole) | here)
    served = Q(queue__actions_elsewhere=False) | _is_here(actions, F("queue__name"))
    return served_by_workers(worker_id, settings, rows, before) & ours & served


def _is_here(actions: frozenset[tuple[str, str]], queue: Any) -> Q:
    """Whether the code here has the action of a task for the queue of that name."""
    names: dict[str, list[str]] = defaultdict(list)
    for name, only in sorted(actions):
        names[only].append(name)
    of_every_queue = Q(action__startswith=DJANGO) | Q(action__in=names.pop("", []))
    return reduce(or_, (Q(Exact(queue, Value(only)), action__in=own) for only, own in names.items()), of_every_queue)


def served_by_workers(worker_id: str, settings: Settings, rows: QuerySet[Any], before: QuerySet[Any]) -> Q:
    """Tasks that could be attempted now by a worker process that had their actions.

    ``before``: only these, as far as that worker could claim them, come before others of the same value.
    """
    paused = Q(queue__claim_paused=True) & (Q(queue__pause_until=None) | Q(queue__pause_until__gt=Now()))
    limit = Coalesce(F("max_attempts"), OuterRef("queue__max_attempts"), Value(settings.MAX_ATTEMPTS))
    first = _before_in_queue(before.filter(allowed(worker_id), state_attempts__lt=limit))
    free = Q(exclusive_value=None) | (~Q(value_is_held(rows)) & ~Q(is_any(first)))
    return attempts_left(settings) & allowed(worker_id) & ~paused & free


def _names(worker: str) -> GreaterThan:
    # Portable, and cheaper than to join the names; a worker's name has no character that JSON spells otherwise.
    return GreaterThan(StrIndex(Cast("worker_ids", TextField()), Value(f'"{worker}"')), 0)


def _before_in_queue(rows: QuerySet[Any]) -> QuerySet[Any]:
    """Those of the tasks that are of the same value of a queue and come first."""
    earlier = Q(priority__lt=OuterRef("priority")) | Q(priority=OuterRef("priority"), pk__lt=OuterRef("pk"))
    same = {"queue": OuterRef("queue"), "exclusive_value": OuterRef("exclusive_value")}
    return rows.filter(earlier, state_ready=True, state="pending", **same)


def _before(eligible: QuerySet[Any]) -> QuerySet[Any]:
    """Tasks of the same value that come first: only those that the same worker could claim now."""
    earlier = Q(priority__lt=OuterRef("priority")) | Q(priority=OuterRef("priority"), pk__lt=OuterRef("pk"))
    return eligible.filter(earlier, exclusive_value=OuterRef("exclusive_value"))
