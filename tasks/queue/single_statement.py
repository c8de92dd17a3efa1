"""Claims of a queue in one statement, for the usual case, on databases that can do this.

The statement has the queue's configuration, as it was last read, in its own condition. If that has changed, or if
anything else is out of the ordinary, it does nothing, and the caller does the same in several statements.
"""

from functools import partial

from django.db.models import CharField, FloatField, JSONField, Q, QuerySet

from stator import claims
from stator.claims import ProgramRecords, Shape
from stator.statements import Parameter
from tasks.actions.registry import declared, registry
from tasks.conf import TaskSettings
from tasks.queue import runs
from tasks.queue.eligibility import Rows, in_line, lease_end, picker
from tasks.queue.expressions import is_any
from tasks.queue.inserts import QueueTemplate
from tasks.rows.claimants import SEEN_EVERY, Claimant
from tasks.rows.clock import Later
from tasks.rows.queues import QueueRow
from tasks.rows.runs import Run

# The rules of a queue that a claim depends on.
CLAIMING = (
    "name", "kind", "lease", "timeout", "max_attempts", "same_worker_again", "worker_retries", "one_per_worker",
    "databases", "claim_paused",
)  # fmt: skip

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
