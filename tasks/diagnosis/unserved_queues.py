"""Queues whose tasks no live worker serves, or only named workers, for ``stator status``, ``doctor`` and the admin."""

from collections.abc import Iterator
from functools import reduce
from operator import or_
from typing import Any

from django.db.models import Case, IntegerField, OuterRef, Q, QuerySet, Subquery, Value, When
from django.db.models.expressions import Combinable

from stator.models import Problem, Survey
from tasks.diagnosis.figures import bounded_count
from tasks.queue.expressions import for_each
from tasks.queue.serving import Service, services_of
from tasks.queue.unserved import TROUBLE, conditions, reason_of
from tasks.rows.queues import pause_lasts
from tasks.rows.tables import queue_rows, task_rows
from tasks.rows.tasks import names_nobody

# The number of tasks to examine of each queue. Tasks that no worker serves come first once the others are claimed.
FIRST = 500

# The most queues with ready tasks to examine, by name, and the most for which a reason is given.
MAX_QUEUES, MAX_TOLD = 200, 20

# In one sum, an unserved task counts as 1, and a task that only named workers serve as this.
NAMED_ONLY = 1_000_000


class _Sum(Subquery):
    template = "(SELECT SUM(line.kind) FROM (%(subquery)s) line)"
    output_field = IntegerField()


def unserved(survey: Survey) -> Iterator[Problem]:
    """Find queues in which no live worker serves some of the first tasks, or only named workers do.

    Unserved queues come first. Queues whose claims are paused are left out. It takes four statements, and a few for
    each problem.
    """
    tasks = task_rows(survey.using)
    services = services_of(list(_with_ready(tasks)[:MAX_QUEUES]), survey.using)
    found = conditions(services, survey.using)
    if not found:
        return
    trouble = reduce(or_, (found[code] for code in TROUBLE if code in found), Q(pk__in=[]))
    named_only = found.get("named_only", Q(pk__in=[]))
    counts = _counts(services, tasks, trouble, named_only)
    groups = [(service, count, trouble, False) for service, count, _ in counts if count]
    groups += [(service, count, named_only, True) for service, _, count in counts if count]
    for group in groups[:MAX_TOLD]:
        yield _problem(tasks, *group)


def _with_ready(tasks: QuerySet[Any]) -> QuerySet[Any]:
    queues = queue_rows(tasks.db)
    paused = Q(claim_paused=True) & pause_lasts()
    waits = Subquery(_line(tasks.filter(queue=OuterRef("pk"))).values("pk")[:1])
    return queues.filter(~paused).alias(waits=waits).filter(waits__isnull=False).order_by("name")


def _line(tasks: QuerySet[Any]) -> QuerySet[Any]:
    """Return the ready tasks in the order of claims and of the index ``tasks_task_ready_in_queue``."""
    ready = tasks.filter(state_ready=True, state="pending", state_claim=None)
    return ready.order_by("priority", names_nobody(), "pk")


def _counts(services: list[Service], tasks: QuerySet[Any], trouble: Q, named_only: Q) -> list[tuple[Service, int, int]]:
    """Return for each queue how many of its first tasks no worker serves, and how many only named workers serve."""
    kind = Case(
        When(trouble, then=Value(1)), When(named_only, then=Value(NAMED_ONLY)),
        default=Value(0), output_field=IntegerField(),
    )  # fmt: skip
    queues = queue_rows(tasks.db)

    def total(queue: OuterRef | int) -> list[Combinable]:
        return [_Sum(_line(tasks.filter(queue=queue)).values(kind=kind)[:FIRST])]

    sums = for_each(queues, [service.queue.pk for service in services], total)
    found = {pk: divmod(total or 0, NAMED_ONLY) for pk, total in sums}
    counts = [(service, *found.get(service.queue.pk, (0, 0))) for service in services]
    return [(service, unserved, named) for service, named, unserved in counts]


def _problem(tasks: QuerySet[Any], service: Service, count: int, matching: Q, is_served: bool) -> Problem:
    first = _line(tasks.filter(matching, queue=service.queue.pk)).first()
    reason = None
    if first is not None:
        first.queue = service.queue
        reason = reason_of(first, tasks, service)
    code = reason.code if reason else "no_worker"
    sentence = reason.sentence if reason else "No live worker serves this queue: no worker process is live."
    who = "only named workers serve" if is_served else "no live worker serves"
    # The framework reports that there is no worker at all.
    level = "ok" if is_served or code == "no_worker" else ""
    return Problem(
        "named_only" if is_served else "", f"{bounded_count(count, count >= FIRST)} ready that {who}",
        {"reason": code, "group": service.queue.name}, reason.remedy if reason else "", level=level,
        where="tasks.Task", model="tasks.task", detail=f"in {service.queue.name}. {sentence}", count=count,
        more=count >= FIRST,
    )  # fmt: skip
