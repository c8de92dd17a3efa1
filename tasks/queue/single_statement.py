"""Claims of a queue and their ends in one statement, for the usual case, on databases that can do this.

Each statement has the queue's configuration, as it was last read, in its own condition. If that has changed, or if
anything else is out of the ordinary, it does nothing, and the caller does the same in several statements.
"""

from datetime import datetime
from functools import partial

from django.db.models import BigIntegerField, CharField, FloatField, JSONField, Q, QuerySet, UUIDField

from stator import claims
from stator.claims import ProgramRecords, Row, Shape
from stator.models import Now
from stator.statements import Parameter
from tasks.actions.registry import declared, registry
from tasks.conf import TaskSettings
from tasks.queue import runs
from tasks.queue.eligibility import Rows, allowed, attempts_left, in_line, lease_end, picker, renewed_end
from tasks.queue.expressions import is_any
from tasks.queue.inserts import QueueTemplate
from tasks.rows.claimants import SEEN_EVERY, Claimant
from tasks.rows.clock import Later
from tasks.rows.queues import QueueRow
from tasks.rows.runs import Run
from tasks.rows.tables import queue_rows, run_rows

# The rules of a queue that a claim depends on.
CLAIMING = (
    "name", "kind", "lease", "timeout", "max_attempts", "same_worker_again", "worker_retries", "one_per_worker",
    "databases", "claim_paused",
)  # fmt: skip

# The columns of the task that a heartbeat reads anew.
FOLLOWED = ("heartbeat_interval", "max_unexpected_retries")

# The columns of a run that the end of its claim writes.
ENDED = ("outcome", "reason")

PK, TOKEN = Parameter("pk", BigIntegerField()), Parameter("token", UUIDField())
METADATA = Parameter("metadata", JSONField())
WORKER, LEASE = Parameter("worker", CharField()), Parameter("lease", FloatField(null=True))


def claim(
    queue: QueueRow,
    worker: str,
    digits: str,
    limit: int,
    lease: float | None,
    metadata: dict[str, object] | None,
    settings: TaskSettings,
) -> tuple[list[claims.Claim], bool]:
    """Claim tasks and record the claims; return also whether the worker has a recent record of asking for tasks.

    With ``metadata``, tasks are claimed only if enough of the first ones have it.
    """
    queue = queue.__dict__.get("known", queue)
    if queue.databases or queue.claim_paused or queue.one_per_worker:
        return [], False
    limited = frozenset(
        name for name in registry if (action := declared(name, queue.name)) is not None and action.throttled
    )
    any_queue = QueueTemplate(queue, CLAIMING)
    found, seen = claims.claim_at_once(
        any_queue.tasks,
        (any_queue.key, settings, limit, lease is None, not metadata, limited),
        partial(_shape, any_queue, limit, lease is not None, METADATA if metadata else None, settings, limited),
        values={**any_queue.values, "worker": worker, "lease": lease, "metadata": metadata},
        worker=digits,
        using=any_queue.using,
    )
    for each in found:
        each.instance.queue = queue
    return sorted(found, key=_place_in_line), seen


def hold(claim: claims.Claim, worker: str, lease: float | None, settings: TaskSettings) -> Row | None:
    """Renew a lease; return the time, its end and the columns ``FOLLOWED``; None if the claim may no longer be held."""
    values = {"pk": claim.pk, "token": claim.token, "worker": worker, "lease": lease}
    build = partial(_holding, claim, lease is not None, settings)
    return claims.hold_at_once(claim, ("hold", lease is None, settings), build, values)


def _holding(
    claim: claims.Claim, has_lease: bool, settings: TaskSettings
) -> tuple[Rows, dict[str, object], tuple[str, ...], ProgramRecords]:
    model, using = type(claim.instance), claim.operations.alias
    longest = claims.longest_lease(model, using=using)
    rows: Rows = QuerySet(model, using=using)
    queues = queue_rows(using)
    mine = rows.filter(allowed(WORKER), pk=PK, state_claim=TOKEN, state_locked_until__gt=Now())
    until = renewed_end(
        LEASE if has_lease else None, longest, settings, queues, run_rows(using).filter(task=PK, token=TOKEN)
    )
    given: dict[str, object] = {"lease": LEASE} if has_lease else {}
    records = ProgramRecords(Run, "task", "token", {"lease_until": "state_locked_until"}, given)
    return mine, {"state_locked_until": until}, ("state_locked_until", *FOLLOWED), records


def end(ends: claims.Ends, to: str, outcome: str, reason: str = "") -> bool:
    """End claims with a move, and record the end in their runs; return False if nothing was done."""
    given = {"ended": Now(), **{name: Parameter(name, Run._meta.get_field(name)) for name in ENDED}}
    copied = {} if ends[0][1] is None else {"result": "result"}
    values = {"outcome": outcome, "reason": reason}
    return claims.end_at_once(ends, to, ProgramRecords(Run, "task", "token", copied, given), values)


def give_up(
    claim: claims.Claim, outcome: str, reason: str, failure: claims.Failure | None, settings: TaskSettings
) -> datetime | None:
    """Make a task wait again, and record the end in its run; return the database's time, from which the task is due.

    None if nothing was done, for instance because the task has no attempts left.
    """
    model, using = type(claim.instance), claim.operations.alias
    given = {"ended": Now(), **{name: Parameter(name, Run._meta.get_field(name)) for name in ENDED}}
    rows: Rows = QuerySet(model, using=using)
    return claims.retry_at_once(
        claim,
        ProgramRecords(Run, "task", "token", {}, given),
        {"outcome": outcome, "reason": reason, "pk": claim.pk},
        ("attempts left", settings),
        lambda: rows.filter(attempts_left(settings), pk=PK),
        failure=failure,
        reason=reason[:500],
    )


def hand_back(claim: claims.Claim) -> bool:
    """Make a task wait as if it had never been claimed, and delete its run; return False if nothing was done."""
    return claims.release_at_once(claim, ProgramRecords(Run, "task", "token", {}, {}))


def _place_in_line(claim: claims.Claim) -> tuple[int, bool, int]:
    task = claim.instance
    return task.priority, task.worker_ids == [], task.pk


def _shape(
    queue: QueueTemplate,
    limit: int,
    has_lease: bool,
    metadata: Parameter | None,
    settings: TaskSettings,
    limited: frozenset[str],
) -> Shape:
    using = queue.using
    longest = claims.longest_lease(queue.tasks, using=using)
    pick = picker(queue, WORKER, metadata, settings)
    seen: Rows = QuerySet(Claimant, using=using).filter(queue=queue.pk, worker=WORKER, seen__gt=Later(-SEEN_EVERY))
    return Shape(
        pick=lambda rows: pick(rows.filter(is_any(queue.same))),
        until=lease_end(LEASE if has_lease else None, longest, settings, queue),
        # A worker must not get two parts of a shared task, and limits of actions are counted by other statements.
        odd=Q(whole__isnull=False) | Q(action__in=sorted(limited)),
        flag=Q(is_any(seen)),
        records=ProgramRecords(
            Run,
            "task",
            "token",
            runs.COPIED | {"token": "state_claim"},
            {"worker": WORKER, "lease": LEASE, "outcome": "", "reason": ""},
        ),
        limit=limit,
        among=in_line(queue, metadata) if metadata else None,
    )
