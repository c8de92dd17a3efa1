"""Tasks that no live worker serves, and tasks that only named workers serve: the reasons for one task and for many.

:func:`reason_of` and :func:`reasons` must agree: the first returns a sentence, the second conditions.
"""

from collections import defaultdict
from functools import reduce
from operator import and_, or_
from typing import Any

from django.db.models import Q, QuerySet

from stator.graph.durations import span
from stator.models import Reason
from tasks.actions.registry import declared
from tasks.queue.actions import known_actions
from tasks.queue.eligibility import allowed, had_by
from tasks.queue.serving import Service, of_processes, service_of, services_of
from tasks.rows.tables import queue_rows, task_rows
from tasks.rows.tasks import TaskRow

# The most workers that a sentence names.
NAMED = 5

# Tasks that every live worker has had are searched for only if at most this many workers are live.
MAX_JUDGED = 10

# The most queues that are examined, by name.
MAX_QUEUES = 1000

# The codes that mean that a task waits for a worker that does not run, the most decisive first.
TROUBLE = ("no_eligible_worker", "no_named_worker", "queue_unserved", "action_unserved", "no_worker")


def reason_of(task: TaskRow, rows: QuerySet[Any], service: Service | None = None) -> Any:
    """Return why no live worker, or only named workers, serve a waiting task.

    Return None if a worker process serves it, or if no worker process runs at all: the framework reports that.
    """
    service = service or service_of(task.queue)
    serving, named = service.serving(task), service.named
    if live := [*named, *sorted(serving)]:
        if not _is_any_eligible(task, named, serving, rows):
            return _no_eligible(task, live, service)
        return None if serving or not task.state_ready else _named_only(task, service)
    if task.worker_ids:
        return Reason("no_named_worker", _gone(task, service), {"workers": task.worker_ids}, REMEDIES["gone"])
    if task.elsewhere_only or _is_of_programs(service, here=declared(task.action, task.queue.name) is not None):
        return _no_named(task, service)
    if not service.processes:
        # The framework has the reason ``no_worker``.
        return None
    return _action_unserved(task, service) if service.taking else _queue_unserved(service)


REMEDIES = {
    "gone": "Start one of them; or publish the task again with its key, update=True and other worker_ids.",
    "rejected": "Start another worker; or publish the task again with its key and clear_failed=True. Queues with "
    "same_worker_again or worker_retries give a task to the same worker again.",
    "named_only": "Wait for one of them. If it takes long, check what they claim.",
    "no_named": "Start a program that claims from this queue, or deploy code that has the action and start runstator.",
    "action": "Deploy code that has the action to the workers, or start a program that claims from this queue. If the "
    "name is wrong, cancel the task and publish it again.",
}


def _is_any_eligible(task: TaskRow, named: list[str], serving: set[str], rows: QuerySet[Any]) -> bool:
    row = rows.filter(pk=task.pk)
    live = [*((worker, False) for worker in named), *((process, True) for process in sorted(serving))]
    wanted = [each for each in live if not task.worker_ids or each[0] in task.worker_ids]
    return any(
        not any(row.filter(had).exists() for had in had_by(worker, rows, task.queue, is_process=is_process))
        for worker, is_process in wanted
    )


def _no_eligible(task: TaskRow, live: list[str], service: Service) -> Any:
    numbers = {"workers": len(live)}
    if task.worker_ids and not set(live).intersection(task.worker_ids):
        return Reason("no_eligible_worker", _gone(task, service), numbers, REMEDIES["gone"])
    or_not = " or are not in its worker_ids" if task.worker_ids else ""
    sentence = f"No eligible worker: all {len(live)} that ask for work ({some(live)}) have had it{or_not}."
    return Reason("no_eligible_worker", sentence, numbers, REMEDIES["rejected"])


def _gone(task: TaskRow, service: Service) -> str:
    told = [
        f"{name} (asked {span(service.asked[name])} ago)" if name in service.asked else f"{name} (has not asked)"
        for name in task.worker_ids[:NAMED]
    ]
    return f"None of the workers in its worker_ids is live: {some(told, len(task.worker_ids))}."


def _named_only(task: TaskRow, service: Service) -> Any:
    count, (last, seconds) = len(service.named), next(iter(service.asked.items()))
    live = "1 is live, and" if count == 1 else f"{count} are live, and"
    sentence = f"{_only_named(task, service)}: {live} {last} asked last, {span(seconds)} ago."
    return Reason("named_only", sentence, {"workers": count, "last": last, "asked": seconds}, REMEDIES["named_only"])


def _no_named(task: TaskRow, service: Service) -> Any:
    last, seconds = next(iter(service.asked.items()), (None, None))
    sentence = f"{_only_named(task, service)}, and none is live: {_last(service)}."
    return Reason("no_named_worker", sentence, {"last": last, "asked": seconds}, REMEDIES["no_named"])


def _only_named(task: TaskRow, service: Service) -> str:
    if task.elsewhere_only:
        return f"Only named workers may run it, those of queue {service.queue.name}"
    if service.taking:
        return f"Only named workers have action {task.action!r} for queue {service.queue.name}"
    return f"Only named workers serve queue {service.queue.name}"


def _action_unserved(task: TaskRow, service: Service) -> Any:
    name, count = service.queue.name, len(service.taking)
    serve = "1 worker process serves" if count == 1 else f"{count} worker processes serve"
    sentence = f"No live worker has action {task.action!r} for queue {name}: {serve} the queue without it"
    if not all(process.matches(task) for process in service.taking):
        sentence = f"No live worker takes it from queue {name}: {serve} tasks of other actions or other metadata only"
    numbers = {"action": task.action, "processes": count}
    return Reason("action_unserved", f"{sentence}, {_nor_named(service)}.", numbers, REMEDIES["action"])


def _queue_unserved(service: Service) -> Any:
    name, count = service.queue.name, len(service.processes)
    others = sorted({queue for process in service.processes for queue in process.queues or ()})
    serve = "1 worker process serves" if count == 1 else f"{count} worker processes serve"
    sentence = f"No live worker serves queue {name}: {serve} only other queues ({some(others)})"
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


def some(names: list[str], count: int | None = None) -> str:
    """Return the first five names for a sentence. ``count``: how many there are, if ``names`` are not all."""
    return ", ".join(names[:NAMED]) + (", ..." if (count or len(names)) > NAMED else "")


def _is_of_programs(service: Service, *, here: bool) -> bool:
    """Return whether named workers, rather than worker processes, should serve an unserved action.

    ``here``: this code has the action, so worker processes may have it.
    """
    if not service.queue.actions_elsewhere:
        return False
    return bool(service.asked and not service.processes) if here else bool(service.asked or not service.processes)


# Many tasks


def reasons(using: str) -> dict[str, Q]:
    """Return the conditions of waiting tasks by the code of their reason, the most decisive first."""
    queues = queue_rows(using)
    found = list(queues.order_by("name")[:MAX_QUEUES])
    paused = [queue.pk for queue in found if queue.claiming_paused]
    held = {"claim_paused": Q(state="pending", queue__in=paused)} if paused else {}
    return held | conditions(services_of(found, using), using)


def conditions(services: list[Service], using: str) -> dict[str, Q]:
    """Return :func:`reasons` for the tasks of some queues. Queues with the same workers share their conditions."""
    alike: dict[Any, list[Service]] = defaultdict(list)
    for service in services:
        alike[_served_by(service)].append(service)
    found: dict[str, list[Q]] = {code: [] for code in (*TROUBLE[:1], "named_only", *TROUBLE[1:])}
    rows = task_rows(using)
    for group in alike.values():
        those = Q(queue__in=[service.queue.pk for service in group])
        for code, condition in _conditions(group[0], rows).items():
            found[code].append(those & condition)
    return {code: reduce(or_, each) for code, each in found.items() if each}


def _served_by(service: Service) -> Any:
    queue = service.queue
    return (
        tuple(process.name for process in service.taking), service.offers, tuple(service.named), bool(service.asked),
        queue.actions_elsewhere, queue.same_worker_again, queue.worker_retries, known_actions(queue.name),
    )  # fmt: skip


def _conditions(service: Service, rows: QuerySet[Any]) -> dict[str, Q]:
    by_process = of_processes(service)
    live = [*((worker, False) for worker in service.named), *((each.name, True) for each in service.taking)]
    unserved = Q(state="pending") if by_process is None else ~by_process
    found = {}
    if live:
        served = Q(state="pending") if service.named else by_process or Q(pk__in=[])
        found["no_eligible_worker"] = served & _rejected(service, live, rows)
    if service.named:
        return found | {"named_only": unserved & Q(state_ready=True)}
    programs = ~Q(worker_ids=[]) | Q(elsewhere_only=True)
    here = Q(action__in=sorted(known_actions(service.queue.name)))
    for condition, is_here in ((here, True), (~here, False)):
        if _is_of_programs(service, here=is_here):
            programs |= condition
    code = "no_worker"
    if service.processes:
        code = "action_unserved" if service.taking else "queue_unserved"
    return found | {"no_named_worker": unserved & programs, code: unserved}


def _rejected(service: Service, live: list[tuple[str, bool]], rows: QuerySet[Any]) -> Q:
    """Return the condition that each of the live workers has had a task or is not in its ``worker_ids``."""
    if len(live) > MAX_JUDGED:
        return Q(pk__in=[])
    tried = Q(state_attempts__gt=0) | ~Q(whole=None) | ~Q(worker_ids=[])
    each = [
        reduce(or_, had_by(worker, rows, service.queue, is_process=is_process), ~Q(allowed(worker)))
        for worker, is_process in live
    ]
    return tried & reduce(and_, each)
