"""Queues whose tasks no live worker serves, or only named workers, for ``stator status``, ``doctor`` and the admin."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial, reduce
from operator import or_
from typing import NamedTuple

from django.db.models import BigIntegerField, Case, IntegerField, Q, Subquery, Value, When
from django.db.models.expressions import Combinable

from stator.db.bounded_counts import in_order
from stator.extensions.problems.surveyed import Survey
from stator.models import Problem, Reason
from stator.texts import count_text
from tasks.extensions.problems.unserved import MAX_JUDGED, TRIED, UNSERVED, conditions, reasons_of
from tasks.extensions.queue_pauses.pausing import claims_are_paused
from tasks.models import Queue
from tasks.queue.eligibility import waiting
from tasks.queue.expressions import for_each, has_any
from tasks.queue.serving import Service, services_of
from tasks.rows.tables import Rows, queue_rows, task_rows
from tasks.rows.tasks import names_nobody

# The number of tasks to examine of each queue. Tasks that no worker serves come first once the others are claimed.
FIRST = 500

# The most queues with ready tasks to examine, by name, and the most that get a reason.
MAX_QUEUES, MAX_TOLD = 200, 20

# In one sum, an unserved task counts as 1, one that only named workers serve as this, and a tried one as its square.
WEIGHT = 1_000_000

NOTHING = Q(pk__in=[])

NO_WORKER = Reason("no_worker", "No live worker serves this queue: no worker process is live.")


class _Counts(NamedTuple):
    """How many tasks no live worker serves, only named workers serve, and have been tried, so that each is judged."""

    unserved: int = 0
    named_only: int = 0
    tried: int = 0


class _First(Subquery):
    total = min


class _Sum(Subquery):
    template = "(SELECT SUM(line.kind) FROM (%(subquery)s) line)"
    output_field = IntegerField()
    total = sum


def unserved(survey: Survey) -> Iterator[Problem]:
    """Find queues with some of their first tasks unserved by any live worker, or served by named workers alone.

    Unserved queues come first. Queues whose claims are paused are left out. It takes four statements, one more if
    tasks have been tried, and three more if it finds any.
    """
    tasks = task_rows(survey.using)
    services = services_of(_with_ready(tasks), survey.using)
    by_code = conditions(services, survey.using, judged=())
    if not by_code:
        return
    judgeable = [service.queue.pk for service in services if 0 < service.live <= MAX_JUDGED]
    counts = _counts(services, tasks, by_code, Q(TRIED, queue__in=judgeable))
    if judged := [service for service in services if counts[service.queue.pk].tried]:
        by_code = conditions(services, survey.using, judged=[service.queue.pk for service in judged])
        counts |= _counts(judged, tasks, by_code)
    groups = [(service, count, False) for service in services if (count := counts[service.queue.pk].unserved)]
    groups += [(service, count, True) for service in services if (count := counts[service.queue.pk].named_only)]
    shown = groups[:MAX_TOLD]
    reasons = _reasons(tasks, [(service, is_served) for service, _, is_served in shown], by_code)
    for service, count, is_served in shown:
        yield _problem(service, count, reasons.get((service.queue.pk, is_served), NO_WORKER), is_served)


def _trouble(by_code: dict[str, Q]) -> Q:
    return reduce(or_, (by_code[code] for code in UNSERVED if code in by_code), NOTHING)


def _with_ready(tasks: Rows) -> list[Queue]:
    queues = queue_rows(tasks.db).filter(~claims_are_paused()).order_by("name")
    return list(queues.filter(has_any(queues, _line))[:MAX_QUEUES])


def _line(tasks: Rows) -> Rows:
    """Return the ready tasks in the order of claims and of the index ``tasks_task_ready_in_queue``."""
    return waiting(tasks).filter(state_claim=None).order_by("priority", names_nobody(), "pk")


def _counts(services: list[Service], tasks: Rows, by_code: dict[str, Q], tried: Q = NOTHING) -> dict[int, _Counts]:
    """Return, by queue, the counts among its first tasks by these conditions."""
    kind = Case(
        When(_trouble(by_code), then=Value(1)), When(tried, then=Value(WEIGHT**2)),
        When(by_code.get("named_only", NOTHING), then=Value(WEIGHT)),
        default=Value(0), output_field=BigIntegerField(),
    )  # fmt: skip

    def total(mine: Rows) -> list[Combinable]:
        return [_Sum(_line(mine).values(kind=kind)[:FIRST])]

    queues = [service.queue.pk for service in services]
    counts = dict.fromkeys(queues, _Counts())
    for pk, sums in for_each(queue_rows(tasks.db), queues, total, partial(in_order, tasks.model)):
        # MariaDB has sums as decimals.
        rest, unserved = divmod(int(sums or 0), WEIGHT)
        counts[pk] = _Counts(unserved, *reversed(divmod(rest, WEIGHT)))
    return counts


def _reasons(tasks: Rows, groups: list[tuple[Service, bool]], by_code: dict[str, Q]) -> dict[tuple[int, bool], Reason]:
    """Return the reason of the first task of each group, by its queue and by whether named workers serve it."""
    conditions = {False: _trouble(by_code), True: by_code.get("named_only", NOTHING)}
    firsts = {
        (pk, is_served): first
        for is_served, condition in conditions.items()
        for pk, first in _firsts(tasks, [one.queue.pk for one, served in groups if served == is_served], condition)
    }
    services = {service.queue.pk: service for service, _ in groups}
    read = {task.pk: task for task in tasks.filter(pk__in=[*firsts.values()])} if firsts else {}
    # A task that was claimed meanwhile may be gone.
    there = {key: read[first] for key, first in firsts.items() if first in read}
    for (queue, _), task in there.items():
        task.queue = services[queue].queue
    reasons = reasons_of([(task, services[queue]) for (queue, _), task in there.items()], by_code)
    return {key: each[0] for key, each in zip(there, reasons, strict=True) if each}


def _firsts(tasks: Rows, queues: list[int], condition: Q) -> Iterable[Sequence[int]]:
    """Return the key of each queue with that of its first task in a condition."""

    def first(mine: Rows) -> list[Combinable]:
        return [_First(_line(mine.filter(condition)).values("pk")[:1])]

    return for_each(queue_rows(tasks.db), queues, first, partial(in_order, tasks.model)) if queues else []


def _problem(service: Service, count: int, reason: Reason, is_served: bool) -> Problem:
    who = "only named workers serve" if is_served else "no live worker serves"
    # The framework reports that there is no worker at all.
    level = "ok" if is_served or reason is NO_WORKER else ""
    return Problem(
        "named_only" if is_served else "", f"{count_text(min(count, FIRST), count >= FIRST)} ready that {who}",
        {"reason": reason.code, "group": service.queue.name}, reason.remedy, level=level, where="tasks.Task",
        model="tasks.task", detail=f"in {service.queue.name}. {reason.sentence}", count=count, more=count >= FIRST,
    )  # fmt: skip
