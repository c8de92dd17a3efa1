"""The rules about the tasks that a worker may claim: the list :data:`RULES`, for named workers and worker processes.

Claims of both kinds of workers are made from it, and so are the reasons of ``explain()``. The limits of leases and
attempts are here too.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from operator import and_
from typing import TYPE_CHECKING, TypeVar

from django.db import connections
from django.db.models import (
    BooleanField,
    Case,
    Count,
    ExpressionWrapper,
    F,
    Func,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    TextField,
    Value,
    When,
)
from django.db.models.expressions import Combinable, Expression
from django.db.models.fields.json import KeyTransform
from django.db.models.functions import Coalesce, Least, StrIndex
from django.db.models.lookups import Exact, GreaterThan, GreaterThanOrEqual

from stator.capabilities import capabilities_of
from stator.graph.backoff import MAX_SECONDS
from stator.models import Worker, tokens_of
from stator.statements import Parameter
from stator.texts import JsonObject
from tasks.actions.registry import declared, longest_timeouts
from tasks.conf import TaskSettings, lease_of_process, load_settings
from tasks.queue.expressions import ExactText, Names, is_any
from tasks.rows.clock import Later
from tasks.rows.queues import QueueRow
from tasks.rows.runs import NO_REJECTIONS, Run
from tasks.rows.tables import Rows, queue_rows, run_rows, task_rows
from tasks.rows.tasks import TaskRow, names_nobody

if TYPE_CHECKING:
    from tasks.models import Queue
    from tasks.queue.inserts import QueueTemplate

# Seconds after a task's timeout at which a worker process loses it, if it has not recorded the timeout by then.
TO_RECORD = 5.0

# Seconds for which a worker process that has had a due task leaves it to processes that have not had it.
LEFT_TO_OTHERS = 5.0

# What a rule is about.
TASK, PROCESS, VALUE, WORKER, PART = "task", "process", "value", "worker", "part"

# What the claims of worker processes may leave out: a queue limits retries; other processes run.
LIMITED, OTHERS = "limited", "others"

# The most names that a sentence has.
MAX_NAMED = 5

# The name of a worker; a parameter in cached statements.
WorkerName = str | Parameter
Lease = float | Parameter | None
Metadata = Mapping[str, object] | Parameter

RowsT = TypeVar("RowsT", bound=Rows)

# A function that returns a column of the task's queue: an expression, or the value if the queue is known.
OfQueue = Callable[[str], Combinable]

# The sentence, the numbers and the remedy of a reason.
Explanation = tuple[str, JsonObject, str]


def of_own_queue(name: str) -> F:
    """Return a column of the task's queue, by a join."""
    return F(f"queue__{name}")


def of_known(queue: object) -> OfQueue:
    """Return a function that returns a queue's columns as values, so that no join is needed."""
    return lambda name: _given(getattr(queue, name))


@dataclass(frozen=True, kw_only=True, slots=True)
class Asking:
    """A worker that asks for tasks, and what else the conditions of :data:`RULES` depend on."""

    worker: WorkerName
    # All tasks of the database.
    rows: Rows
    settings: TaskSettings
    # The queue that a named worker asks; None for a worker process, which asks all queues.
    queue: "QueueRow | QueueTemplate | None" = None
    of_queue: OfQueue = of_own_queue
    # The tasks that hold up later ones with the same exclusive value.
    before: Rows = field(default_factory=task_rows)
    # The id of a worker process that claims now; empty if only its earlier attempts matter.
    process: str = ""
    # ``LIMITED`` and ``OTHERS``, as far as the claims of a worker process depend on them.
    in_force: frozenset[str] = frozenset({LIMITED})

    @property
    def runs(self) -> QuerySet[Run]:
        """The worker's runs of the outer query's task."""
        return run_rows(self.rows.db).filter(worker=self.worker, task=OuterRef("pk"))


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition that a task meets if a worker may claim it, and the reason of ``explain`` if it does not meet it.

    ``about``: ``TASK``; ``PROCESS`` if only worker processes obey the rule; ``VALUE`` for other tasks with the same
    exclusive value; ``WORKER``; ``PART`` for the worker and the other parts of a shared task. ``reason`` returns its
    parts, given the task and all tasks; without it, what serves the queue gives the reason.
    """

    code: str
    about: str
    condition: Callable[[Asking], Q]
    reason: Callable[[TaskRow, Rows], Explanation | None] | None = None


def may_claim(asking: Asking, *about: str) -> Q:
    """Return the condition that a worker may claim a task by the rules about these things."""
    return reduce(and_, (rule.condition(asking) for rule in RULES if rule.about in about))


def picker(
    queue: "QueueRow | QueueTemplate", worker: WorkerName, metadata: Metadata | None, settings: TaskSettings
) -> Callable[[Rows], Rows]:
    """Return a function that filters claimable rows to the ones this worker may claim now, in the order of claims."""

    def pick(rows: Rows) -> Rows:
        every = task_rows(rows.db)
        asking = Asking(worker=worker, rows=every, settings=settings, queue=queue, of_queue=of_known(queue))
        eligible = rows.filter(may_claim(asking, TASK, WORKER, PART), queue=queue.pk)
        if metadata:
            eligible = with_metadata(eligible, metadata)
        if queue.exclusive:
            eligible = eligible.filter(may_claim(replace(asking, before=eligible), VALUE))
        return _in_line(eligible)

    return pick


def in_line(queue: "QueueRow | QueueTemplate", metadata: Metadata) -> Callable[[Rows], Rows]:
    """Return a function that orders a queue's claimable rows, and annotates rows with this metadata as ``sought``."""
    sought = ExpressionWrapper(_in_gin(metadata), BooleanField())
    return lambda rows: _in_line(rows.filter(queue=queue.pk).annotate(sought=sought))


def _in_line(rows: Rows) -> Rows:
    return rows.order_by("priority", names_nobody(), "pk")


def effective(name: str, setting: float | None, of_queue: OfQueue) -> Coalesce:
    """Return a task's limit: its own, else its queue's, else the setting."""
    return Coalesce(F(name), of_queue(name), Value(setting))


def attempts_left(settings: TaskSettings, of_queue: OfQueue = of_own_queue) -> Q:
    """Return the condition that a task has attempts left."""
    return Q(state_attempts__lt=effective("max_attempts", settings.MAX_ATTEMPTS, of_queue))


def allowed(worker: WorkerName) -> Q:
    """Return the condition that a task is for anyone, or names this worker."""
    return Q(worker_ids=[]) | Q(Names(worker))


# Conditions of runs.
IS_REJECTION = ~Q(outcome__in=NO_REJECTIONS)


def _may_again(asking: Asking) -> Q:
    """Return the condition that a worker has not released or failed a task, or may have it again.

    A queue's ``worker_retries`` limit how many times; without them a named worker never may. A process first leaves the
    task for some seconds to live processes that have not had it.
    """
    had = asking.runs.filter(version=OuterRef("state_version")).order_by()
    rejections, first_attempt = had.filter(IS_REJECTION), Q(state_attempts=0)
    if asking.queue is not None:
        again = asking.queue.worker_retries or 0
        may = first_attempt | ~Q(is_any(rejections[again : again + 1]))
        return Q() if asking.queue.same_worker_again else may
    if not asking.in_force:
        return Q()
    # Most tasks are at their first attempt; then the database evaluates nothing else.
    may = first_attempt | Q(Exact(asking.of_queue("same_worker_again"), Value(True)))
    unlimited = Q(Exact(Coalesce(asking.of_queue("worker_retries"), Value(-1)), Value(-1)))
    if LIMITED in asking.in_force:
        count = rejections.values("worker").annotate(count=Count("pk")).values("count")[:1]
        may |= ~unlimited & Q(
            GreaterThanOrEqual(asking.of_queue("worker_retries"), Coalesce(Subquery(count), Value(0)))
        )
    return may | (unlimited & ~_is_for_others(asking, had) if OTHERS in asking.in_force else unlimited)


def _is_for_others(asking: Asking, had: QuerySet[Run]) -> Q:
    lately = GreaterThan(Coalesce(F("state_next_attempt"), F("state_changed")), Later(-LEFT_TO_OTHERS))
    had_too = run_rows().filter(task=OuterRef(OuterRef("pk")), version=OuterRef(OuterRef("state_version")))
    others = other_processes(asking.process).filter(~Q(is_any(had_too.filter(worker=OuterRef("name")).order_by())))
    return Q(lately) & Q(is_any(had)) & Q(is_any(others))


def other_processes(worker_id: str) -> QuerySet[Worker]:
    """Return the other live worker processes that run tasks."""
    served = StrIndex(ExactText("models"), Value('"tasks.task"'))
    return Worker.objects.live().exclude(pk=worker_id).filter(GreaterThan(served, 0))


def is_mine(worker_id: str) -> Q:
    """Return the condition that a worker holds a task: it made the token, which begins with its id."""
    return Q(state_locked_until__isnull=False, state_claim__range=tokens_of(worker_id))


def _running(rows: Rows) -> Rows:
    """Return the running tasks with the value of the outer query's task; the constraint's unique index is used."""
    return rows.filter(_same_value(), state_claim__isnull=False)


def _earlier(rows: Rows) -> Rows:
    """Return the tasks among ``rows`` with the value of the outer query's task that come first."""
    priority, pk = OuterRef("priority"), OuterRef("pk")
    return rows.filter(_same_value(), Q(priority__lt=priority) | Q(priority=priority, pk__lt=pk))


def _same_value() -> Q:
    return Q(queue=OuterRef("queue"), exclusive_value=OuterRef("exclusive_value"), shard=OuterRef("shard"))


def _used_up(task: TaskRow, rows: Rows) -> Explanation:
    count = task.state_attempts
    sentence = f"It has had all of its {count} attempts; workers move it to errored at their next pass."
    return sentence, {"attempts": count}, "Wait for that pass; then requeue the task."


def _held(task: TaskRow, rows: Rows) -> Explanation | None:
    return _same_value_as(task, rows, _running(rows), "runs", "Wait for that task.")


def _behind(task: TaskRow, rows: Rows) -> Explanation | None:
    return _same_value_as(task, rows, _earlier(waiting(rows)), "comes first", "Wait for that task, or cancel it.")


def _same_value_as(task: TaskRow, rows: Rows, others: Rows, does: str, remedy: str) -> Explanation | None:
    first = Subquery(others.order_by("priority", "pk").values("pk")[:1])
    pk = rows.filter(pk=task.pk).values_list(first, flat=True).first()
    value = f"{task.queue.exclusive_key}={task.exclusive_value}"
    sentence = f"Task {pk} {does}, and only one task with {value} runs at a time."
    return (sentence, {"task": pk, "value": task.exclusive_value}, remedy) if pk else None


def _of_programs(task: TaskRow, rows: Rows) -> Explanation | None:
    queue = task.queue.name
    sentence = f"Only external programs run it: queue {queue} did not list {task.action!r} in http_actions."
    remedy = "Claim it from an external program; or add the action to http_actions and publish it again."
    return (sentence, {"action": task.action}, remedy) if declared(task.action, queue) else None


def _of_others(task: TaskRow, rows: Rows) -> Explanation:
    names = task.worker_ids
    sentence = f"Only these workers may claim it: {some(names)}."
    return sentence, {"workers": names}, "Check whether those workers are running."


def some(names: list[str], count: int | None = None) -> str:
    """Return the first five names for a sentence. ``count``: how many there are, if ``names`` are not all."""
    return ", ".join(names[:MAX_NAMED]) + (", ..." if (count or len(names)) > MAX_NAMED else "")


def waiting(rows: Rows) -> Rows:
    """Return the ready tasks among ``rows``."""
    return rows.filter(state="pending", state_ready=True)


# In the order of the reasons, the most decisive first; extensions add theirs.
RULES = [
    Rule("attempts_used_up", TASK, lambda asking: attempts_left(asking.settings, asking.of_queue), _used_up),
    Rule("exclusive_held", VALUE, lambda asking: ~Q(is_any(_running(asking.rows))), _held),
    Rule("exclusive_behind", VALUE, lambda asking: ~Q(is_any(_earlier(asking.before))), _behind),
    Rule("elsewhere_only", PROCESS, lambda asking: Q(elsewhere_only=False), _of_programs),
    Rule("only_workers", WORKER, lambda asking: allowed(asking.worker), _of_others),
    Rule("no_eligible_worker", WORKER, _may_again),
]


def with_metadata(rows: RowsT, metadata: Metadata) -> RowsT:
    """Return the tasks whose metadata has all of these names and values; PostgreSQL uses a GIN index."""
    if isinstance(metadata, Parameter) or (able := capabilities_of(connections[rows.db])).has_gin:
        return rows.filter(_in_gin(metadata))
    for number, (name, value) in enumerate(metadata.items()):
        path = Value(f"$.{json.dumps(name)}")
        if able.compares_json_as_text and isinstance(value, bool | int | float | str):
            given = Value(json.dumps(value))
            rows = rows.filter(Func("metadata", given, path, function="JSON_CONTAINS", output_field=BooleanField()))
            continue
        # A lookup such as metadata__name would not do: the name may be any text, even the name of a lookup.
        rows = rows.alias(**{f"tasks_value_{number}": KeyTransform(name, "metadata")})
        rows = rows.filter(**{f"tasks_value_{number}": value})
        if able.takes_booleans_for_texts and (isinstance(value, bool) or value in ("true", "false")):
            kind = Func("metadata", path, function="JSON_TYPE", output_field=TextField())
            rows = rows.filter(Exact(kind, Value(str(value).lower() if isinstance(value, bool) else "text")))
    return rows


def has_metadata(rows: Rows, metadata: Mapping[str, object]) -> Q:
    """Return the condition of :func:`with_metadata` for a row of any query on the same table."""
    if capabilities_of(connections[rows.db]).has_gin:
        return _in_gin(metadata)
    return Q(is_any(with_metadata(rows.filter(pk=OuterRef("pk")), metadata)))


def _in_gin(metadata: Metadata) -> Q:
    """Return the condition; by its second part the planner knows that the indexes have all such tasks."""
    return Q(metadata__contains=metadata) & ~Q(metadata={})


def lease_end(lease: Lease, longest: float, settings: TaskSettings, queue: object) -> Later:
    """Return the end of a claim that is made now: after its lease, but not after the task's timeout."""
    own = of_known(queue)
    wanted = effective("lease", settings.LEASE, own) if lease is None else _given(lease)
    timeout = effective("timeout", _longest(settings), own)
    return Later(Least(wanted, timeout, Value(longest)))


def _given(value: object) -> Value:
    return value if isinstance(value, Parameter) else Value(value)


def lease_end_in_process(usual: float, since: Combinable) -> Expression:
    """Return the end of a lease of a worker process: by the lease of the task or queue, at most 5 s after the timeout.

    ``since``: when the attempt began. The process ends the attempt at the timeout, and needs time to record that.
    """
    of_queue = partial(_looked_up, queue_rows())
    ends = Later(timeout_in_process() + Value(TO_RECORD), since=since)
    return Least(Later(effective("lease", lease_of_process(usual), of_queue)), ends)


def timeout_in_process() -> Expression:
    """Return the seconds that an attempt in a worker process may take: an action's timeout precedes its queue's."""
    usually = effective("timeout", _longest(load_settings()), partial(_looked_up, queue_rows()))
    by_action = [When(action=name, then=Value(most)) for name, most in longest_timeouts().items()]
    return Coalesce(F("timeout"), Case(*by_action, default=usually))


def renewed_end(
    lease: Lease, longest: float, settings: TaskSettings, queues: "QuerySet[Queue]", run: QuerySet[Run]
) -> Least:
    """Return the end of a claim that is renewed now: after the given or previous lease, but within the timeout.

    ``run``: the run of the claim.
    """
    of_queue = partial(_looked_up, queues)
    usual = effective("lease", settings.LEASE, of_queue)
    wanted = Coalesce(Subquery(run.values("lease")[:1]), usual) if lease is None else _given(lease)
    timeout = effective("timeout", _longest(settings), of_queue)
    return Least(Later(Least(wanted, Value(longest))), Later(timeout, since=F("state_attempted")))


def _longest(settings: TaskSettings) -> float:
    return MAX_SECONDS if settings.TIMEOUT is None else settings.TIMEOUT


def _looked_up(queues: "QuerySet[Queue]", name: str) -> Subquery:
    """Return a column of the task's queue for an UPDATE, which cannot join."""
    return Subquery(queues.filter(pk=OuterRef("queue")).values(name)[:1])
