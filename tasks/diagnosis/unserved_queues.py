"""Queues whose tasks no live worker serves, or only named workers, for ``stator status``, ``doctor`` and the admin."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial, reduce
from operator import or_
from typing import Any

from django.db.models import Case, IntegerField, Q, QuerySet, Subquery, Value, When
from django.db.models.expressions import Combinable

from stator.db.bounded_counts import in_order
from stator.models import Problem, Reason, Survey
from stator.texts import told
from tasks.queue.eligibility import waiting
from tasks.queue.expressions import for_each, has_any
from tasks.queue.serving import Service, services_of
from tasks.queue.unserved import UNSERVED, conditions, reasons_of
from tasks.rows.queues import claims_are_paused
from tasks.rows.tables import queue_rows, task_rows
from tasks.rows.tasks import names_nobody

# The number of tasks to examine of each queue. Tasks that no worker serves come first once the others are claimed.
FIRST = 500

# The most queues with ready tasks to examine, by name, and the most that get a reason.
MAX_QUEUES, MAX_TOLD = 200, 20

# In one sum, an unserved task counts as 1, and a task that only named workers serve as this.
NAMED_ONLY = 1_000_000

NO_WORKER = Reason("no_worker", "No live worker serves this queue: no worker process is live.")


class _First(Subquery):
    total = min


class _Sum(Subquery):
    template = "(SELECT SUM(line.kind) FROM (%(subquery)s) line)"
    output_field = IntegerField()
    total = sum


def unserved(survey: Survey) -> Iterator[Problem]:
    """Find queues with some of their first tasks unserved by any live worker, or served by named workers alone.

    Unserved queues come first. Queues whose claims are paused are left out. It takes four statements, and three more
    if it finds any.
    """
    tasks = task_rows(survey.using)
    services = services_of(_with_ready(tasks), survey.using)
    found = conditions(services, survey.using)
    if not found:
        return
    trouble = reduce(or_, (found[code] for code in UNSERVED if code in found), Q(pk__in=[]))
    named_only = found.get("named_only", Q(pk__in=[]))
    counts = _counts(services, tasks, trouble, named_only)
    groups = [(service, count, False) for service, (_, count) in counts if count]
    groups += [(service, count, True) for service, (count, _) in counts if count]
    shown = groups[:MAX_TOLD]
    both = {False: trouble, True: named_only}
    reasons = _reasons(tasks, [(service, is_served) for service, _, is_served in shown], both)
    for service, count, is_served in shown:
        yield _problem(service, count, reasons.get((service.queue.pk, is_served), NO_WORKER), is_served)


def _with_ready(tasks: QuerySet[Any]) -> list[Any]:
    queues = queue_rows(tasks.db).filter(~claims_are_paused()).order_by("name")
    return list(queues.filter(has_any(queues, _line))[:MAX_QUEUES])


def _line(tasks: QuerySet[Any]) -> QuerySet[Any]:
    """Return the ready tasks in the order of claims and of the index ``tasks_task_ready_in_queue``."""
    return waiting(tasks).filter(state_claim=None).order_by("priority", names_nobody(), "pk")


def _counts(
    services: list[Service], tasks: QuerySet[Any], trouble: Q, named_only: Q
) -> list[tuple[Service, tuple[int, int]]]:
    """Return for each queue how many of its first tasks only named workers serve, and how many no worker serves."""
    kind = Case(
        When(trouble, then=Value(1)), When(named_only, then=Value(NAMED_ONLY)),
        default=Value(0), output_field=IntegerField(),
    )  # fmt: skip

    def total(mine: QuerySet[Any]) -> list[Combinable]:
        return [_Sum(_line(mine).values(kind=kind)[:FIRST])]

    sums = for_each(
        queue_rows(tasks.db), [service.queue.pk for service in services], total, partial(in_order, tasks.model)
    )
    # MariaDB has sums as decimals.
    found = {pk: divmod(int(total or 0), NAMED_ONLY) for pk, total in sums}
    return [(service, found.get(service.queue.pk, (0, 0))) for service in services]


def _reasons(
    tasks: QuerySet[Any], groups: list[tuple[Service, bool]], conditions: dict[bool, Q]
) -> dict[tuple[Any, bool], Reason]:
    """Return the reason of the first task of each group, by its queue and by whether named workers serve it."""
    firsts = {
        (pk, is_served): first
        for is_served, condition in conditions.items()
        for pk, first in _firsts(tasks, [one.queue.pk for one, served in groups if served == is_served], condition)
    }
    services = {service.queue.pk: service for service, _ in groups}
    read = {task.pk: task for task in tasks.filter(pk__in=[*firsts.values()])} if firsts else {}
    # A task that was claimed meanwhile may be gone.
    found = {key: read[first] for key, first in firsts.items() if first in read}
    for (queue, _), task in found.items():
        task.queue = services[queue].queue
    reasons = reasons_of([(task, services[queue]) for (queue, _), task in found.items()])
    return {key: each[0] for key, each in zip(found, reasons, strict=True) if each}


def _firsts(tasks: QuerySet[Any], queues: list[Any], condition: Q) -> Iterable[Sequence[Any]]:
    """Return the key of each queue with that of its first task in a condition."""

    def first(mine: QuerySet[Any]) -> list[Combinable]:
        return [_First(_line(mine.filter(condition)).values("pk")[:1])]

    return for_each(queue_rows(tasks.db), queues, first, partial(in_order, tasks.model)) if queues else []


def _problem(service: Service, count: int, reason: Reason, is_served: bool) -> Problem:
    who = "only named workers serve" if is_served else "no live worker serves"
    # The framework reports that there is no worker at all.
    level = "ok" if is_served or reason is NO_WORKER else ""
    return Problem(
        "named_only" if is_served else "", f"{told(min(count, FIRST), count >= FIRST)} ready that {who}",
        {"reason": reason.code, "group": service.queue.name}, reason.remedy, level=level, where="tasks.Task",
        model="tasks.task", detail=f"in {service.queue.name}. {reason.sentence}", count=count, more=count >= FIRST,
    )  # fmt: skip
