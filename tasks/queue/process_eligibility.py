"""The conditions under which a worker process may claim a task: a named worker's, and that it has the action.

They apply to all queues at once, in one statement.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import lru_cache, reduce
from operator import or_
from types import MappingProxyType

from django.db.models import Count, F, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce, StrIndex
from django.db.models.lookups import Exact, GreaterThan, GreaterThanOrEqual

from stator.models import Worker, name_of, tokens_of
from tasks.actions.registry import registry
from tasks.conf import DJANGO, TaskSettings, load_settings
from tasks.messages import worker_digits
from tasks.queue.eligibility import (
    HAD_PART,
    HAS_PART,
    IS_REJECTION,
    OfQueue,
    Rows,
    allowed,
    comes_before,
    has_metadata,
    of_own_queue,
    open_to_all,
    value_is_held,
    with_metadata,
)
from tasks.queue.expressions import ExactText, is_any
from tasks.rows.clock import Later
from tasks.rows.queues import pause_lasts
from tasks.rows.tables import queue_rows, run_rows, task_rows
from tasks.rows.tasks import names_nobody

# Seconds for which a worker process that has had a due task leaves it to processes that have not had it.
HANDED_ON = 5.0


def open_to_process(worker_id: str, held: Q) -> Q:
    """Return the condition that a worker process may claim a task now.

    Its code must have the action for the queue: other tasks are left to a newer release, or to external programs. Tasks
    of Django's framework are always claimed, because their functions are imported when they are called. A worker that
    is limited to some queues claims only from these. ``held``: paused tasks, which do not block other tasks.
    """
    here = frozenset((name, queue) for name, by_queue in registry.items() for queue in by_queue)
    rules, chosen = _rules.get(worker_id, ALL_RULES), _chosen.get(worker_id, ANYTHING)
    return _open_to_process(worker_id, load_settings(), here, held, rules, chosen, _only.get(worker_id))


def may_hold(worker_id: str, using: str) -> Q:
    """Return the condition that a worker process may keep a task: it is for anyone, or names the process."""
    return allowed(name_of(worker_id, using))


def note_rules(worker_id: str, aliases: Iterable[str]) -> None:
    """Read which rules any queue has, so that a worker's claims omit the other rules; repeated at each heartbeat."""
    queues = queue_rows()
    asked = {
        ONE_EACH: queues.filter(one_per_worker=True),
        LIMITED: queues.filter(worker_retries__isnull=False),
        OTHERS: _others(worker_id),
    }
    _rules[worker_id] = frozenset(
        rule for rule, rows in asked.items() if any(rows.using(alias).exists() for alias in aliases)
    )


# Rules that claims may leave out: a queue gives each worker one task; a queue limits retries; other processes run.
ONE_EACH, LIMITED, OTHERS = "one each", "limited", "others"
ALL_RULES = frozenset({ONE_EACH, LIMITED, OTHERS})

# The rules in force by worker id; a worker that never called ``note_rules`` uses all of them.
_rules: dict[str, frozenset[str]] = {}


def choose(worker_id: str, queues: tuple[str, ...], metadata: Mapping[str, object] = MappingProxyType({})) -> None:
    """Restrict the worker with this id to tasks of these queues, and with these values in their metadata."""
    _chosen[worker_id] = queues, tuple(sorted(metadata.items()))


# The queues and the metadata by worker id, without workers that serve all tasks.
Chosen = tuple[tuple[str, ...], tuple[tuple[str, object], ...]]
ANYTHING: Chosen = ((), ())
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
    queues, metadata = chosen[0], dict(chosen[1])
    rows = task_rows()
    # A task that waits for newer code blocks later ones with its value, unless external programs serve the queue.
    # ``OuterRef``: the earlier task is in the same queue, so the queue is joined only once.
    whole, here = Exact(OuterRef("queue__actions_elsewhere"), Value(False)), _is_here(actions, OuterRef("queue__name"))
    ours = Q(elsewhere_only=False)
    before = rows.filter(~held, ours, Q(whole) | here)
    if metadata:
        before = with_metadata(before, metadata)
    served = ours & _is_here(actions, F("queue__name"))
    mine = served_by_process(worker_id, settings, rows, before, rules) & served
    # If a queue is the first to get a rule, this worker claims nothing from it until it has read the rule.
    if LIMITED not in rules:
        mine &= Q(queue__worker_retries=None)
    if queues:
        mine &= Q(queue__name__in=queues)
    if metadata:
        mine &= has_metadata(rows, metadata)
    if only is not None:
        mine &= Q(action__in=sorted(only))
    if ONE_EACH not in rules:
        return mine & Q(queue__one_per_worker=False)
    first = rows.filter(mine, ~held, queue=OuterRef("pk"), state="pending", state_ready=True, state_claim=None)
    return mine & (Q(queue__one_per_worker=False) | Q(pk__in=_firsts(worker_id, rows, first)))


def _is_here(actions: frozenset[tuple[str, str]], queue: F | OuterRef) -> Q:
    """Return the condition that this code has a task's action for the queue with that name."""
    names: dict[str, list[str]] = defaultdict(list)
    for name, only in sorted(actions):
        names[only].append(name)
    of_every_queue = Q(action__startswith=DJANGO) | Q(action__in=names.pop("", []))
    return reduce(or_, (Q(Exact(queue, Value(only)), action__in=own) for only, own in names.items()), of_every_queue)


def served_by_process(
    worker_id: str, settings: TaskSettings, rows: Rows, before: Rows, rules: frozenset[str] = ALL_RULES
) -> Q:
    """Return the condition that a worker process could attempt a task now if it had the action.

    ``before``: the tasks that block later ones with the same value if this worker could claim them. ``rules``: the
    rules that any queue has.
    """
    name = name_of(worker_id)
    paused = Q(queue__claim_paused=True) & pause_lasts("queue__")
    claimable = before.filter(
        allowed(name), _not_had(worker_id, _of_outer_queue, rules), open_to_all(settings, None, _of_outer_queue)
    )
    free = Q(exclusive_value=None) | (~Q(value_is_held(rows)) & ~Q(is_any(_before_in_queue(claimable))))
    own = allowed(name) & _not_had(worker_id, of_own_queue, rules) & _one_part(worker_id, rows, rules)
    return open_to_all(settings, None, of_own_queue) & own & ~paused & free


def _of_outer_queue(field: str) -> OuterRef:
    return OuterRef(f"queue__{field}")


def _before_in_queue(rows: Rows) -> Rows:
    """Return the tasks in the same queue with the same value that come first."""
    earlier = comes_before(OuterRef("priority"), OuterRef("pk"))
    same = {"queue": OuterRef("queue"), "exclusive_value": OuterRef("exclusive_value")}
    return rows.filter(earlier, state_ready=True, state="pending", **same)


def _not_had(worker_id: str, of_queue: OfQueue, rules: frozenset[str]) -> Q:
    """Return the condition that the process has not had a task, or may have it again.

    A queue with ``worker_retries`` limits how many times. In other queues the process first leaves the task for some
    seconds to live processes that have not had it.
    """
    if not rules & {LIMITED, OTHERS}:
        return Q()
    name, runs = name_of(worker_id), run_rows()
    had = runs.filter(task=OuterRef("pk"), version=OuterRef("state_version")).order_by()
    # Most tasks are at their first attempt; then the database evaluates nothing else.
    may = Q(state_attempts=0) | Q(Exact(of_queue("same_worker_again"), Value(True)))
    unlimited = Q(Exact(Coalesce(of_queue("worker_retries"), Value(-1)), Value(-1)))
    if LIMITED in rules:
        mine = had.filter(IS_REJECTION, worker=name).values("worker").annotate(count=Count("pk")).values("count")
        within = GreaterThanOrEqual(of_queue("worker_retries"), Coalesce(Subquery(mine[:1]), Value(0)))
        may |= ~unlimited & Q(within)
    if OTHERS not in rules:
        return may | unlimited
    mine_too = Q(is_any(had.filter(worker=name)))
    lately = GreaterThan(Coalesce(F("state_next_attempt"), F("state_changed")), Later(-HANDED_ON))
    had_too = run_rows().filter(task=OuterRef(OuterRef("pk")), version=OuterRef(OuterRef("state_version")))
    others = _others(worker_id).filter(~Q(is_any(had_too.filter(worker=OuterRef("name")).order_by())))
    return may | (unlimited & ~(Q(lately) & mine_too & Q(is_any(others))))


def _others(worker_id: str) -> QuerySet[Worker]:
    """Return the other live worker processes that run tasks."""
    served = StrIndex(ExactText("models"), Value('"tasks.task"'))
    return Worker.objects.live().exclude(pk=worker_id).filter(GreaterThan(served, 0))


def _one_part(worker_id: str, rows: Rows, rules: frozenset[str]) -> Q:
    """Return the condition that a task is no part of a shared one, or the first waiting part that the process may have.

    Only the first, so that one claim does not take two parts.
    """
    runs = run_rows().filter(worker=name_of(worker_id), task=OuterRef("pk"))
    had = Q(is_any(runs.filter(HAS_PART)))
    if LIMITED in rules:
        limited = Q(queue__worker_retries__isnull=False, queue__same_worker_again=False)
        had |= limited & Q(is_any(runs.filter(HAD_PART, IS_REJECTION)))
    earlier = Q(pk__lt=OuterRef("pk"), state="pending", state_ready=True)
    in_the_way = rows.filter(Q(earlier) | _is_mine(worker_id) | had, whole=OuterRef("whole"))
    return Q(whole=None) | ~Q(is_any(in_the_way))


def _firsts(worker_id: str, rows: Rows, waiting: Rows) -> Rows:
    """Return the first waiting task of each ``one_per_worker`` queue in which the process has no task.

    A program of the same name is the same worker.
    """
    queues = queue_rows().filter(one_per_worker=True)
    namesake = worker_digits(name_of(worker_id))
    held = rows.filter(_is_mine(worker_id) | _is_mine(namesake), queue=OuterRef("pk"))
    first = waiting.order_by("priority", names_nobody(), "pk").values("pk")[:1]
    return queues.filter(~Q(is_any(held))).order_by().values_list(Subquery(first))


def _is_mine(worker_id: str) -> Q:
    """Return the condition that a worker holds a task: it made the token, which begins with its id."""
    return Q(state_locked_until__isnull=False, state_claim__range=tokens_of(worker_id))
