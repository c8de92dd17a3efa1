"""The conditions under which a named worker may claim a task, and the conditions for all workers.

Named workers, worker processes and :func:`tasks.queue.explaining.explain` share the list :data:`RULES`.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

from django.db import connections
from django.db.models import (
    BooleanField,
    Case,
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
from django.db.models.functions import Coalesce, Least
from django.db.models.lookups import Exact

from stator.capabilities import capabilities_of
from stator.graph.backoff import MAX_SECONDS
from stator.statements import Parameter
from tasks.actions.registry import longest_timeouts
from tasks.conf import TaskSettings, lease_of_process, load_settings
from tasks.queue.expressions import Names, is_any
from tasks.rows.clock import Later
from tasks.rows.tables import queue_rows, run_rows
from tasks.rows.tasks import TaskRow, names_nobody

# Seconds after a task's timeout at which a worker process loses it, if it has not recorded the timeout by then.
TO_RECORD = 5.0

# Rows of models that cannot be imported here.
Rows = QuerySet[Any]

# The name of a named worker; a parameter in cached statements.
Worker = str | Parameter
Lease = float | Parameter | None
Metadata = dict[str, object] | Parameter


# A function that returns a field of the queue, from the row itself or from the outer query's row.
OfQueue = Callable[[str], F | OuterRef]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule on tasks that all workers obey; ``explain`` gives its reason for a task that does not meet it.

    ``condition`` builds the rule's condition from the settings, and from the queue if it is known, else from a function
    for the queue's fields. ``sentence`` and ``numbers`` return the reason's parts for a task.
    """

    code: str
    condition: Callable[[TaskSettings, Any, OfQueue], Q]
    sentence: Callable[[TaskRow], str]
    numbers: Callable[[TaskRow], dict[str, object]]
    remedy: str


def open_to_all(settings: TaskSettings, queue: Any, of_queue: OfQueue) -> Q:
    """Return the condition that a task meets all :data:`RULES`."""
    return reduce(and_, (rule.condition(settings, queue, of_queue) for rule in RULES))


def of_own_queue(name: str) -> F:
    """Return the field of the task's queue."""
    return F(f"queue__{name}")


def picker(queue: Any, worker: Worker, metadata: Metadata | None, settings: TaskSettings) -> Callable[[Any], Any]:
    """Return a function that filters claimable rows to the ones this worker may claim now, in the order of claims."""

    def pick(rows: Rows) -> Rows:
        eligible = rows.filter(open_to_all(settings, queue, of_own_queue), allowed(worker), queue=queue.pk)
        for had in had_by(worker, rows, queue):
            eligible = eligible.filter(~had)
        if metadata:
            eligible = with_metadata(eligible, metadata)
        if queue.exclusive:
            eligible = eligible.filter(~value_is_held(rows), ~is_any(_before(eligible)))
        return _in_line(eligible)

    return pick


def in_line(queue: Any, metadata: Metadata) -> Callable[[Any], Any]:
    """Return a function that orders a queue's claimable rows, and annotates rows with this metadata as ``sought``."""
    sought = ExpressionWrapper(Q(metadata__contains=metadata), BooleanField())
    return lambda rows: _in_line(rows.filter(queue=queue.pk).annotate(sought=sought))


def _in_line(rows: Rows) -> Rows:
    return rows.order_by("priority", names_nobody(), "pk")


def effective(name: str, setting: Any, queue: Any = None, of_queue: OfQueue = of_own_queue) -> Any:
    """Return a task's limit: its own, else its queue's, else the setting. With ``queue``, no join is needed."""
    if queue is not None:
        own = getattr(queue, name)
        return Coalesce(F(name), _given(setting if own is None else own))
    return Coalesce(F(name), of_queue(name), Value(setting))


def attempts_left(settings: TaskSettings, queue: Any = None, of_queue: OfQueue = of_own_queue) -> Q:
    """Return the condition that a task has attempts left."""
    return Q(state_attempts__lt=effective("max_attempts", settings.MAX_ATTEMPTS, queue, of_queue))


RULES = (
    Rule(
        "attempts_used_up",
        attempts_left,
        lambda task: (
            f"It has had all of its {task.state_attempts} attempts; workers move it to errored at their next pass."
        ),
        lambda task: {"attempts": task.state_attempts},
        "Wait for that pass; then requeue the task.",
    ),
)


def comes_before(priority: object, pk: object) -> Q:
    """Return the condition that a task comes before the one with this priority and key."""
    return Q(priority__lt=priority) | Q(priority=priority, pk__lt=pk)


def allowed(worker: Worker) -> Q:
    """Return the condition that a task is for anyone, or names this worker."""
    return Q(worker_ids=[]) | Q(Names(worker))


def had_by(worker: Worker, rows: Rows, queue: Any, *, is_process: bool = False) -> list[Q]:
    """Return the conditions that exclude a worker from a task: its earlier claims of the task or of its other parts.

    A worker that completed one part of a shared task, or runs one, gets no other part, even with
    ``same_worker_again``. A worker process may have a task again if the queue has no ``worker_retries``.
    """
    runs = run_rows(rows.db).filter(worker=worker)
    of_parts = runs.filter(task__whole=OuterRef("whole"))
    again = queue.worker_retries
    if queue.same_worker_again or (is_process and again is None):
        return [_of_shared(of_parts.filter(HAS_PART))]
    again = again or 0
    of_task = runs.filter(IS_REJECTION, task=OuterRef("pk"), version=OuterRef("state_version"))
    return [Q(is_any(of_task[again : again + 1])), _of_shared(of_parts.filter(HAS_PART | (HAD_PART & IS_REJECTION)))]


# Conditions of runs. An attempt that ended with TryAgainLater is no rejection.
IS_REJECTION = ~Q(outcome="waited")
HAS_PART = Q(outcome="succeeded", task__state="completed") | Q(task__state_claim=F("token"))
HAD_PART = Q(version=F("task__state_version"))


def _of_shared(runs: Rows) -> Q:
    return ~Q(whole=None) & Q(is_any(runs))


def with_metadata(rows: Rows, metadata: Metadata) -> Any:
    """Return the tasks whose metadata has all of these names and values; PostgreSQL uses the GIN index."""
    if isinstance(metadata, Parameter) or (able := capabilities_of(connections[rows.db])).has_gin:
        return rows.filter(metadata__contains=metadata)
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


def has_metadata(rows: Rows, metadata: dict[str, object]) -> Q:
    """Return the condition of :func:`with_metadata` for a row of any query on the same table."""
    if capabilities_of(connections[rows.db]).has_gin:
        return Q(metadata__contains=metadata)
    return Q(is_any(with_metadata(rows.filter(pk=OuterRef("pk")), metadata)))


def value_is_held(rows: Rows) -> Any:
    """Return whether a task with the same exclusive value runs; the unique index of the constraint is used."""
    every: Rows = QuerySet(rows.model, using=rows.db)
    return is_any(
        every.filter(queue=OuterRef("queue"), exclusive_value=OuterRef("exclusive_value"), state_claim__isnull=False)
    )


def lease_end(lease: Lease, longest: float, settings: TaskSettings, queue: Any) -> Any:
    """Return the end of a claim that is made now: after its lease, but not after the task's timeout."""
    wanted = effective("lease", settings.LEASE, queue) if lease is None else _given(lease)
    timeout = effective("timeout", MAX_SECONDS if settings.TIMEOUT is None else settings.TIMEOUT, queue)
    return Later(Least(wanted, timeout, Value(longest)))


def _given(lease: float | Parameter) -> Value:
    return lease if isinstance(lease, Parameter) else Value(lease)


def lease_end_in_process(usual: float, since: Combinable) -> Expression:
    """Return the end of a lease of a worker process: by the lease of the task or queue, at most 5 s after the timeout.

    ``since``: when the attempt began. The process ends the attempt at the timeout, and needs time to record that.
    """
    queues = queue_rows()
    # An action's timeout precedes its queue's.
    usually = _of_queue("timeout", MAX_SECONDS if load_settings().TIMEOUT is None else load_settings().TIMEOUT, queues)
    by_action = [When(action=name, then=Value(most)) for name, most in longest_timeouts().items()]
    timeout = Coalesce(F("timeout"), Case(*by_action, default=usually))
    ends = Later(timeout + Value(TO_RECORD), since=since)
    return Least(Later(_of_queue("lease", lease_of_process(usual), queues)), ends)


def renewed_end(lease: Lease, longest: float, settings: TaskSettings, queues: Rows, run: Rows) -> Any:
    """Return the end of a claim that is renewed now: after the given or previous lease, but within the timeout.

    ``run``: the run of the claim.
    """
    usual = _of_queue("lease", settings.LEASE, queues)
    wanted = Coalesce(Subquery(run.values("lease")[:1]), usual) if lease is None else _given(lease)
    timeout = _of_queue("timeout", MAX_SECONDS if settings.TIMEOUT is None else settings.TIMEOUT, queues)
    return Least(Later(Least(wanted, Value(longest))), Later(timeout, since=F("state_attempted")))


def _of_queue(name: str, setting: float | None, queues: Rows) -> Any:
    """Return a task's limit like :func:`effective`, for an UPDATE, which cannot join."""
    return Coalesce(F(name), Subquery(queues.filter(pk=OuterRef("queue")).values(name)[:1]), Value(setting))


def _before(eligible: Rows) -> Rows:
    """Return the earlier tasks with the same value that the same worker could claim now."""
    earlier = comes_before(OuterRef("priority"), OuterRef("pk"))
    return eligible.filter(earlier, exclusive_value=OuterRef("exclusive_value"))
