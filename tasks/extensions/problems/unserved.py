"""Tasks that no live worker serves, and tasks that only named workers serve: for one task and for many.

The conditions of a task's workers are the rules of their claims: :data:`tasks.queue.eligibility.RULES`.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import chain
from operator import or_

from django.db.models import Case, Q, Value, When

from stator.graph.durations import span
from stator.models import Reason, are_apart
from stator.statements import is_one_of
from tasks.conf import load_settings
from tasks.extensions.queue_pauses.pausing import claims_are_paused
from tasks.queue.actions import known_actions
from tasks.queue.eligibility import MAX_NAMED, PART, WORKER, Asking, may_claim, of_known, of_own_queue, some
from tasks.queue.serving import Service, services_of, taken
from tasks.rows.tables import Rows, queue_rows, task_rows
from tasks.rows.tasks import NO_PART, TaskRow

# Among many tasks, one that every live worker has had is searched for only if at most this many workers are live.
MAX_JUDGED = 10

# The condition without which some worker may have a task that is served.
TRIED = Q(state_attempts__gt=0) | ~NO_PART | ~Q(worker_ids=[])

# The most queues that are examined, by name.
MAX_QUEUES = 1000

# The codes that mean that a task waits for a worker that does not run, the most decisive first.
UNSERVED = ("no_eligible_worker", "no_named_worker", "queue_unserved", "action_unserved", "no_worker")


def reasons(using: str) -> dict[str, Q]:
    """Return the conditions of waiting tasks by the code of their reason, the most decisive first."""
    queues = list(queue_rows(using).order_by("name")[:MAX_QUEUES])
    paused = Q(claims_are_paused(of_own_queue), state="pending")
    return {"claim_paused": paused, **conditions(services_of(queues, using), using)}


def conditions(services: list[Service], using: str, judged: Collection[object] | None = None) -> dict[str, Q]:
    """Return :func:`reasons` for the tasks of some queues. Queues with the same workers share their conditions.

    ``judged``: the only queues with a condition for tasks that every live worker has had. It has parts for each worker.
    """
    alike = defaultdict(list)
    for service in services:
        is_judged = (judged is None or service.queue.pk in judged) and 0 < service.live <= MAX_JUDGED
        alike[_served_by(service), is_judged].append(service)
    by_code: dict[str, list[Q]] = {code: [] for code in (*UNSERVED[:1], "named_only", *UNSERVED[1:])}
    rows = task_rows(using)
    for (_, is_judged), group in alike.items():
        of_queues = Q(is_one_of(rows, [service.queue.pk for service in group], "queue"))
        for code, condition in _conditions(group[0], rows, is_judged=is_judged).items():
            by_code[code].append(of_queues & condition)
    return {code: reduce(or_, each) for code, each in by_code.items() if each}


def _served_by(service: Service) -> object:
    queue = service.queue
    return (
        tuple((offer, *names) for offer, names in service.offers.items()), tuple(service.named), bool(service.asked),
        queue.actions_elsewhere, queue.same_worker_again, queue.worker_retries, known_actions(queue.name),
    )  # fmt: skip


def _conditions(service: Service, rows: Rows, *, is_judged: bool) -> dict[str, Q]:
    by_process = _taken(service, rows)
    by_code = {}
    if is_judged:
        each = _open_to_each(service, rows)
        by_code["no_eligible_worker"] = _served(service, rows) & TRIED & ~reduce(or_, each)
    if service.named:
        return by_code | {"named_only": ~by_process & Q(state_ready=True)}
    code = "no_worker"
    if service.processes:
        code = "action_unserved" if service.taking else "queue_unserved"
    return by_code | {"no_named_worker": ~by_process & _of_programs(service), code: ~by_process}


def _taken(service: Service, rows: Rows) -> Q:
    """Return the condition that a live worker process can run a task."""
    return reduce(or_, (taken(offer, rows) for offer in service.offers), Q(pk__in=[]))


def _served(service: Service, rows: Rows) -> Q:
    return Q(state="pending") if service.named else _taken(service, rows)


def _open_to_each(service: Service, rows: Rows) -> Iterator[Q]:
    """Yield for each live worker the condition that it may have a task of the queue."""
    asking = Asking(worker="", rows=rows, settings=load_settings())
    named = replace(asking, queue=service.queue, of_queue=of_known(service.queue))
    for name in service.named:
        yield may_claim(replace(named, worker=name), WORKER, PART)
    for offer, names in service.offers.items():
        yield from (taken(offer, rows) & may_claim(replace(asking, worker=name), WORKER, PART) for name in names)


def _of_programs(service: Service) -> Q:
    """Return the condition that named workers, rather than worker processes, should serve an unserved task."""
    theirs = ~Q(worker_ids=[]) | Q(elsewhere_only=True)
    if service.queue.actions_elsewhere and (service.asked or not service.processes):
        # Worker processes may have the actions that this code has.
        none_here = service.asked and not service.processes
        theirs |= Q(state="pending") if none_here else ~Q(action__in=sorted(known_actions(service.queue.name)))
    return theirs


def reason_of(task: TaskRow, service: Service) -> list[Reason]:
    """Return the reason why no live worker, or only named workers, serve a waiting task of a queue.

    The list is empty if a worker process serves it, or if no worker process runs at all: the framework reports that.
    """
    (reasons,) = reasons_of([(task, service)])
    return reasons


def reasons_of(waiting: Sequence[tuple[TaskRow, Service]], by_code: dict[str, Q] | None = None) -> list[list[Reason]]:
    """Return :func:`reason_of` for waiting tasks of one database, each with its queue's workers.

    One statement, or one for each task if they are on several nodes or very many workers are live. ``found``: the
    conditions, if they are known.
    """
    codes = _codes(waiting, by_code)
    judged = [(codes.get(task.pk, ""), task, service) for task, service in waiting]
    judgements = [(_judged(*one), *one[1:]) for one in judged]
    return [
        [REASONS[code](task, service)] if code and code != "no_worker" else [] for code, task, service in judgements
    ]


def _codes(waiting: Sequence[tuple[TaskRow, Service]], by_code: dict[str, Q] | None) -> dict[int, str]:
    if not waiting:
        return {}
    rows = task_rows(waiting[0][0]._state.db)
    by_code = by_code or conditions([service for _, service in waiting], rows.db)
    first = Case(*(When(condition, then=Value(code)) for code, condition in by_code.items()), default=Value(""))
    codes = rows.values_list("pk", first)
    if are_apart(rows.model, rows.db):
        return dict(row for task, _ in waiting for row in codes.filter(pk=task.pk, shard=task.shard))
    return dict(codes.filter(pk__in=[task.pk for task, _ in waiting]))


def _judged(code: str, task: TaskRow, service: Service) -> str:
    """Return the code, after a search for a worker that may have the task if :func:`conditions` left that out."""
    if service.live <= MAX_JUDGED or code not in ("", "named_only"):
        return code
    rows = task_rows(task._state.db)
    row = rows.filter(pk=task.pk, shard=task.shard)
    if not row.filter(_served(service, rows)).exists():
        return code
    return code if any(row.filter(each).exists() for each in _open_to_each(service, rows)) else "no_eligible_worker"


GONE = "Start one of them; or publish the task again with its key, update=True and other worker_ids."


def _no_eligible(task: TaskRow, service: Service) -> Reason:
    rows = task_rows(task._state.db)
    row = rows.filter(pk=task.pk)
    serving = [names for offer, names in service.offers.items() if row.filter(taken(offer, rows)).exists()]
    live = [*service.named, *sorted(chain.from_iterable(serving))]
    numbers = {"workers": len(live)}
    if task.worker_ids and not set(live).intersection(task.worker_ids):
        return Reason("no_eligible_worker", _gone(task, service), numbers, GONE)
    or_not = " or are not in its worker_ids" if task.worker_ids else ""
    sentence = f"No eligible worker: all {len(live)} that ask for work ({some(live)}) have had it{or_not}."
    remedy = (
        "Start another worker; or publish the task again with its key and clear_failed=True. Queues with "
        "same_worker_again or worker_retries give a task to the same worker again."
    )
    return Reason("no_eligible_worker", sentence, numbers, remedy)


def _gone(task: TaskRow, service: Service) -> str:
    names = [
        f"{name} (asked {span(service.asked[name])} ago)" if name in service.asked else f"{name} (has not asked)"
        for name in task.worker_ids[:MAX_NAMED]
    ]
    return f"None of the workers in its worker_ids is live: {some(names, len(task.worker_ids))}."


def _named_only(task: TaskRow, service: Service) -> Reason:
    count, (last, seconds) = len(service.named), next(iter(service.asked.items()))
    live = "1 is live, and" if count == 1 else f"{count} are live, and"
    sentence = f"{_only_named(task, service)}: {live} {last} asked last, {span(seconds)} ago."
    numbers = {"workers": count, "last": last, "asked": seconds}
    return Reason("named_only", sentence, numbers, "Wait for one of them. If it takes long, check what they claim.")


def _no_named(task: TaskRow, service: Service) -> Reason:
    if task.worker_ids:
        return Reason("no_named_worker", _gone(task, service), {"workers": task.worker_ids}, GONE)
    last, seconds = next(iter(service.asked.items()), (None, None))
    sentence = f"{_only_named(task, service)}, and none is live: {_last(service)}."
    remedy = "Start a program that claims from this queue, or deploy code that has the action and start runstator."
    return Reason("no_named_worker", sentence, {"last": last, "asked": seconds}, remedy)


def _only_named(task: TaskRow, service: Service) -> str:
    if task.elsewhere_only:
        return f"Only named workers may run it, those of queue {service.queue.name}"
    if service.taking:
        return f"Only named workers have action {task.action!r} for queue {service.queue.name}"
    return f"Only named workers serve queue {service.queue.name}"


def _action_unserved(task: TaskRow, service: Service) -> Reason:
    name, count = service.queue.name, len(service.taking)
    serve = "1 worker process serves" if count == 1 else f"{count} worker processes serve"
    sentence = f"No live worker has action {task.action!r} for queue {name}: {serve} the queue without it"
    if any(process.metadata for process in service.taking):
        sentence = f"No live worker takes it from queue {name}: {serve} tasks of other actions or other metadata only"
    remedy = (
        "Deploy code that has the action to the workers, or start a program that claims from this queue. "
        "If the name is wrong, cancel the task and publish it again."
    )
    numbers = {"action": task.action, "processes": count}
    return Reason("action_unserved", f"{sentence}, {_nor_named(service)}.", numbers, remedy)


def _queue_unserved(task: TaskRow, service: Service) -> Reason:
    name, count = service.queue.name, len(service.processes)
    others = sorted({queue for process in service.processes for queue in process.queues or ()})
    serve = "1 worker process serves" if count == 1 else f"{count} worker processes serve"
    which = f" ({some(others)})" if others else ""
    sentence = f"No live worker serves queue {name}: {serve} only other queues{which}"
    remedy = f"Start runstator without --queue, or with --queue {name}; or start a program that claims from this queue."
    return Reason("queue_unserved", f"{sentence}, {_nor_named(service)}.", {"processes": count}, remedy)


def _nor_named(service: Service) -> str:
    return (
        f"and no named worker is live: {_last(service)}" if service.asked else "and no named worker has asked for work"
    )


def _last(service: Service) -> str:
    if not service.asked:
        return "none has asked for work yet"
    worker, seconds = next(iter(service.asked.items()))
    return f"{worker} asked last, {span(seconds)} ago"


# The reason of one task by its code.
REASONS = {
    "no_eligible_worker": _no_eligible,
    "named_only": _named_only,
    "no_named_worker": _no_named,
    "action_unserved": _action_unserved,
    "queue_unserved": _queue_unserved,
}
