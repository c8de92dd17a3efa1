"""Which tasks a worker process may claim: the rules allow them, and it has their actions.

They apply to all queues at once, in one statement.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, reduce
from operator import or_
from typing import TYPE_CHECKING, Self

from django.db.models import F, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.lookups import Exact

from stator.db.conditions import CLAIM, Condition
from stator.models import are_apart, name_of
from tasks.actions.registry import everywhere
from tasks.conf import DJANGO, TaskSettings, load_settings
from tasks.messages import worker_digits
from tasks.queue.eligibility import (
    LIMITED,
    OTHERS,
    PART,
    PROCESS,
    TASK,
    VALUE,
    WORKER,
    Asking,
    allowed,
    has_metadata,
    is_mine,
    may_claim,
    other_processes,
    waiting,
    with_metadata,
)
from tasks.queue.expressions import is_any
from tasks.rows.databases import home
from tasks.rows.tables import Rows, queue_rows, task_model, task_rows
from tasks.rows.tasks import names_nobody

if TYPE_CHECKING:
    from stator.claims import Operations
    from tasks.models import Queue


class Eligible(Condition):
    """Tasks that a worker process may claim and hold."""

    of_processes = True

    @classmethod
    def bind(cls, store: "Operations", earlier: Sequence[Condition]) -> Self | None:
        return cls(store, earlier) if store.model is task_model() else None

    def rows(self, deed: str) -> Q | None:
        return open_to_process(self._store.worker_id, self.held_back) if deed == CLAIM else None

    def holds(self) -> Q | None:
        # It is for anyone, or names the process.
        return allowed(name_of(self._store.worker_id, self._store.alias))


def open_to_process(worker_id: str, held: Q) -> Q:
    """Return the condition that a worker process may claim a task now.

    Its code must have the action for the queue: other tasks are left to a newer release, or to external programs. Tasks
    of Django's framework are always claimed, because their functions are imported when they are called. A worker that
    is limited to some queues claims only from these. ``held``: paused tasks, which do not block other tasks.
    """
    rules, chosen = _rules.get(worker_id, ALL_RULES), _chosen.get(worker_id, ANYTHING)
    if are_apart(task_model(), home()):
        # These rules compare rows of several nodes, or with a table on the coordinator.
        rules -= {ONE_EACH, OTHERS}
    return _open_to_process(worker_id, load_settings(), everywhere(), held, rules, chosen, _only.get(worker_id))


def note_rules(worker_id: str, aliases: Iterable[str]) -> None:
    """Read which rules any queue has, so that a worker's claims omit the other rules; repeated at each heartbeat."""
    queues = queue_rows()
    asked = {
        ONE_EACH: queues.filter(one_per_worker=True),
        LIMITED: queues.filter(worker_retries__isnull=False),
        OTHERS: other_processes(worker_id),
    }
    _rules[worker_id] = frozenset(
        rule for rule, rows in asked.items() if any(rows.using(alias).exists() for alias in aliases)
    )


# A queue gives each worker one task; claims may leave out this rule and two more.
ONE_EACH = "one each"
ALL_RULES = frozenset({ONE_EACH, LIMITED, OTHERS})

# The rules in force by worker id; a worker that never called ``note_rules`` uses all of them.
_rules: dict[str, frozenset[str]] = {}


def choose(worker_id: str, queues: tuple[str, ...], metadata: Mapping[str, object], excluded: tuple[str, ...]) -> None:
    """Restrict the worker with this id to tasks of these queues, not ``excluded``, with these values in metadata."""
    _chosen[worker_id] = queues, tuple(sorted(metadata.items())), excluded


# The queues, the metadata and the excluded queues by worker id, without workers that serve all tasks.
Chosen = tuple[tuple[str, ...], tuple[tuple[str, object], ...], tuple[str, ...]]
ANYTHING: Chosen = ((), (), ())
_chosen: dict[str, Chosen] = {}


def choose_actions(worker_id: str, actions: frozenset[str] | None) -> None:
    """Restrict the claims of the worker with this id to these actions for now; None: to none."""
    _only[worker_id] = actions


# The only actions that are claimed at the moment, by worker id.
_only: dict[str, frozenset[str] | None] = {}


@lru_cache(maxsize=32)
def _open_to_process(
    worker_id: str,
    settings: TaskSettings,
    actions: frozenset[tuple[str, str]],
    held: Q,
    rules: frozenset[str],
    chosen: Chosen,
    only: frozenset[str] | None,
) -> Q:
    queues, metadata, rows = chosen[0], dict(chosen[1]), task_rows()
    asking = Asking(worker=name_of(worker_id), rows=rows, settings=settings, process=worker_id, in_force=rules)
    # A task that waits for newer code blocks later ones with its value, unless external programs serve the queue.
    # ``OuterRef``: the earlier task is in the same queue, so the queue is joined only once.
    ours, here = Exact(OuterRef("queue__actions_elsewhere"), Value(False)), _is_here(actions, OuterRef("queue__name"))
    earlier = replace(asking, of_queue=_of_outer_queue)
    before = waiting(rows).filter(~held, Q(ours) | here, may_claim(earlier, TASK, PROCESS, WORKER))
    if metadata:
        before = with_metadata(before, metadata)
    free = Q(exclusive_value=None) | may_claim(replace(asking, before=before), VALUE)
    mine = may_claim(asking, TASK, PROCESS, WORKER, PART) & free & _is_here(actions, F("queue__name"))
    # If a queue is the first to get a rule, this worker claims nothing from it until it has read the rule.
    if LIMITED not in rules:
        mine &= Q(queue__worker_retries=None)
    if queues:
        mine &= Q(queue__name__in=queues)
    if chosen[2]:
        mine &= ~Q(queue__name__in=chosen[2])
    if metadata:
        mine &= has_metadata(rows, metadata)
    if only is not None:
        mine &= Q(action__in=sorted(only))
    if ONE_EACH not in rules:
        return mine & Q(queue__one_per_worker=False)
    first = waiting(rows).filter(mine, ~held, queue=OuterRef("pk"), state_claim=None)
    return mine & (Q(queue__one_per_worker=False) | Q(pk__in=_firsts(worker_id, rows, first)))


def _is_here(actions: frozenset[tuple[str, str]], queue: F | OuterRef) -> Q:
    """Return the condition that this code has a task's action for the queue with that name."""
    names: dict[str, list[str]] = defaultdict(list)
    for name, only in sorted(actions):
        names[only].append(name)
    of_every_queue = Q(action__startswith=DJANGO) | Q(action__in=names.pop("", []))
    return reduce(or_, (Q(Exact(queue, Value(only)), action__in=own) for only, own in names.items()), of_every_queue)


def _of_outer_queue(field: str) -> OuterRef:
    return OuterRef(f"queue__{field}")


def _firsts(worker_id: str, rows: Rows, waiting: Rows) -> "QuerySet[Queue, object]":
    """Return the first waiting task of each ``one_per_worker`` queue without a task of this process.

    A program of the same name is the same worker.
    """
    queues = queue_rows().filter(one_per_worker=True)
    namesake = worker_digits(name_of(worker_id))
    held = rows.filter(is_mine(worker_id) | is_mine(namesake), queue=OuterRef("pk"))
    first = waiting.order_by("priority", names_nobody(), "pk").values("pk")[:1]
    return queues.filter(~Q(is_any(held))).order_by().values_list(Subquery(first))
