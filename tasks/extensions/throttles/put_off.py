"""Tasks that wait because a limit of their action is used up: which limit, how many, and when the last is done."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from shlex import quote
from typing import TYPE_CHECKING, NamedTuple

from django.db.models import Q, QuerySet

from stator.graph.durations import seconds_of
from stator.models import Now
from stator.rows.readings import read
from stator.survey.estimates import Estimate, estimate
from tasks.actions.registry import declared
from tasks.extensions.throttles.frequency import UsedLimit
from tasks.extensions.throttles.models import ActionRate, ActionSlot
from tasks.queue.eligibility import RowsT
from tasks.queue.paces import MAX_ENDED, ended_lately, span_of
from tasks.rows.tables import Rows, task_model, task_rows

if TYPE_CHECKING:
    from tasks.models import Task

# The first waiting tasks that are read, of those the groups that are looked into, and the sampled tasks of a group.
MOST, GROUPS, SAMPLED = 10_000, 20, 100

NO_ROWS = Q(pk__in=())
_IS_RESTING = Q(state="pending", state_ready=False, state_claim=None)


class _Resting(NamedTuple):
    """A task that waits for its due time."""

    pk: int
    queue: int
    action: str
    attempted: datetime | None
    changed: datetime
    now: datetime


@dataclass(frozen=True, slots=True)
class PutOff:
    """Tasks of one action in a queue that wait for its limits: how many, and for how many seconds the first of them.

    ``limit``: the one that most of them wait for. ``end``: when the last is done, if that is known. ``more``: there may
    be more.
    """

    queue: int
    action: str
    limit: UsedLimit
    count: int
    waited: float
    more: bool
    end: Estimate | None


def command_for(action: str, queue: str) -> str:
    """Return the command that makes due what waits for a limit, once it is raised."""
    return f"manage.py tasks retry {quote(action)} --queue {quote(queue)}"


def remedy_for(put: UsedLimit, action: str, queue: str) -> str:
    """Return what to do about a limit: it is in the code."""
    declaration = declared(action, queue)
    where = f" in {declaration.function.__module__}" if declaration else ""
    return f"raise {put.option} of action {action}{where} and deploy that, then run {command_for(action, queue)}"


def signs(using: str) -> Iterator[QuerySet[ActionRate] | QuerySet[ActionSlot]]:
    """Yield rows without which no task waits for a limit."""
    yield ActionRate.objects.using(using)
    yield ActionSlot.objects.using(using)


def put_off(using: str, *, queue: int | None = None, action: str | None = None) -> list[PutOff]:
    """Return the tasks that wait for limits of their actions, most first; of one queue or action, if these are given.

    Three statements, and one for each group. They are looked for among the first ``MOST`` tasks that wait for their due
    time, and counted by the reasons of a sample. Index ``st_rest``.
    """
    tasks = task_rows(using)
    resting = [_Resting(*values) for values in _resting(tasks)]
    groups: dict[tuple[int, str], list[_Resting]] = defaultdict(list)
    for one in resting[:MOST]:
        if one.attempted is not None and queue in (None, one.queue) and action in (None, one.action):
            groups[one.queue, one.action].append(one)
    largest = sorted(groups.values(), key=len, reverse=True)[:GROUPS]
    sampled = [rows[:: -(-len(rows) // SAMPLED)] for rows in largest]
    limits = _limits(using, [one.pk for sample in sampled for one in sample])
    more = len(resting) > MOST
    made = [_group(tasks, *each, limits, more=more) for each in zip(largest, sampled, strict=True)]
    return sorted((one for one in made if one), key=lambda one: -one.count)


def waiting_for_limits(tasks: RowsT, action: str, queue: int | None = None) -> RowsT:
    """Return the tasks of an action, and of one queue if it is given, that wait for a limit of the action."""
    said = {"error": "", "state": "pending", "message__endswith": UsedLimit.END}
    is_put_off = read("with_report", tasks.db, task_model(), said, otherwise=NO_ROWS)
    meant = tasks.filter(action=action, **({} if queue is None else {"queue": queue}))
    return meant.filter(_IS_RESTING, is_put_off, state_attempted__isnull=False)


def _resting(tasks: Rows) -> "QuerySet[Task, tuple]":
    resting = tasks.filter(_IS_RESTING, state_next_attempt__isnull=False)
    columns = ("pk", "queue", "action", "state_attempted", "state_changed", Now())
    return resting.order_by("state_next_attempt").values_list(*columns)[: MOST + 1]


def _limits(using: str, pks: Collection[int]) -> dict[int, UsedLimit]:
    """Return the limits that tasks wait for, by their latest reports."""
    columns = ("object_pk", "message", "state")
    said = read("reported", using, "tasks.task", map(str, pks), columns, False, otherwise=()) if pks else ()
    limits = {int(pk): UsedLimit.read(message) for pk, message, state in said if state == "pending"}
    return {pk: limit for pk, limit in limits.items() if limit is not None}


def _group(
    tasks: Rows, rows: list[_Resting], sample: list[_Resting], limits: dict[int, UsedLimit], *, more: bool
) -> PutOff | None:
    known = Counter(limits[one.pk] for one in sample if one.pk in limits)
    if not known:
        return None
    [(limit, largest)], first = known.most_common(1), rows[0]
    count = max(1, round(len(rows) * known.total() / len(sample)))
    waited = max(seconds_of(one.now - one.changed) for one in sample if one.pk in limits)
    # All are done when the last of the key with most of them is.
    each = limit.per_second
    allowed = None if each is None else each * known.total() / largest
    moves, seconds = _moves(tasks, first, waited)
    end = estimate(count, first.now, moves=moves, limit=allowed, seconds=seconds, more=more)
    return PutOff(first.queue, first.action, limit, count, waited, more, end)


def _moves(tasks: Rows, of: _Resting, waited: float) -> tuple[float, float]:
    """Return how many tasks of an action have ended a second lately, and in how many seconds."""
    ended = list(ended_lately(tasks.filter(queue=of.queue)).values_list("action", "state_changed")[:MAX_ENDED])
    seconds = span_of(len(ended), min((at for _, at in ended), default=None), of.now, waited)
    return sum(action == of.action for action, _ in ended) / seconds, seconds
