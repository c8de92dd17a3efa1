"""Queues whose tasks no live worker serves, or only named workers, for ``stator status``, ``doctor`` and the admin."""

from collections.abc import Iterator
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
from tasks.queue.parts import parts_of
from tasks.queue.serving import Service, services_of
from tasks.queue.unserved import UNSERVED, conditions, reason_of
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


class _Sum(Subquery):
    template = "(SELECT SUM(line.kind) FROM (%(subquery)s) line)"
    output_field = IntegerField()
    total = sum


def unserved(survey: Survey) -> Iterator[Problem]:
    """Find queues with some of their first tasks unserved by any live worker, or served by named workers alone.

    Unserved queues come first. Queues whose claims are paused are left out. It takes four statements, and a few for
    each problem.
    """
    tasks = task_rows(survey.using)
    services = services_of(_with_ready(tasks), survey.using)
    found = conditions(services, survey.using)
    if not found:
        return
    trouble = reduce(or_, (found[code] for code in UNSERVED if code in found), Q(pk__in=[]))
    named_only = found.get("named_only", Q(pk__in=[]))
    counts = _counts(services, tasks, trouble, named_only)
    groups = [(service, count, trouble, False) for service, (_, count) in counts if count]
    groups += [(service, count, named_only, True) for service, (count, _) in counts if count]
    for group in groups[:MAX_TOLD]:
        yield _problem(tasks, *group)


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


def _problem(tasks: QuerySet[Any], service: Service, count: int, matching: Q, is_served: bool) -> Problem:
    mine = tasks.filter(matching, queue=service.queue.pk, **parts_of(service.queue))
    first = _line(mine.select_related("queue")).first()
    reason = next(iter(reason_of(first, service) if first else ()), NO_WORKER)
    who = "only named workers serve" if is_served else "no live worker serves"
    # The framework reports that there is no worker at all.
    level = "ok" if is_served or reason is NO_WORKER else ""
    return Problem(
        "named_only" if is_served else "", f"{told(min(count, FIRST), count >= FIRST)} ready that {who}",
        {"reason": reason.code, "group": service.queue.name}, reason.remedy, level=level, where="tasks.Task",
        model="tasks.task", detail=f"in {service.queue.name}. {reason.sentence}", count=count, more=count >= FIRST,
    )  # fmt: skip
