"""Claims of tasks by named workers: programs anywhere, through Python or the HTTP API.

In the usual case a claim is one statement, on databases that can do this. It has the queue's configuration, as it was
last read, in its condition. If that has changed, or if anything else is out of the ordinary, the statement does
nothing, and the claim takes several.
"""

from collections.abc import Callable, Hashable, Mapping
from contextlib import suppress
from functools import partial, reduce
from operator import or_
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import IntegrityError
from django.db.models import CharField, FloatField, JSONField, Q, QuerySet, Value

from stator import claims
from stator.statements import Parameter
from tasks.conf import TaskSettings, load_settings
from tasks.exceptions import TaskError
from tasks.messages import check_lease, check_metadata, check_worker, worker_digits
from tasks.queue import runs
from tasks.queue.eligibility import in_line, lease_end, picker
from tasks.queue.expressions import is_any
from tasks.queue.held_claims import TaskClaim
from tasks.queue.inserts import QueueTemplate
from tasks.queue.kept_runs import CLAIMED
from tasks.rows.claimants import SEEN_EVERY, Claimant
from tasks.rows.clock import Later
from tasks.rows.tables import Rows, task_model

if TYPE_CHECKING:
    from tasks.models import Queue

# A try fails when another worker has just claimed a task of the same exclusive value.
TRIES = 10

# The rules of a queue that a claim depends on.
CLAIMING = (
    "name", "kind", "lease", "timeout", "max_attempts", "same_worker_again", "worker_retries", "one_per_worker",
    "claim_paused",  # tasks.extensions.queue_pauses
)  # fmt: skip


class Sieve(NamedTuple):
    """What an extension asks of tasks that a named worker is about to get, by statements of its own.

    ``of``: what ``asked_about`` depends on, by the name of the queue. ``asked_about``: the condition of these tasks,
    which no claim in one statement takes. ``keep``: of claims that have locked their tasks, the ones that the worker
    gets.
    """

    of: Callable[[str], Hashable]
    asked_about: Callable[[Any], Q]
    keep: Callable[["Queue", str, list[claims.Claim]], list[claims.Claim]]


SIEVES: list[Sieve] = []

METADATA = Parameter("metadata", JSONField())
WORKER, LEASE = Parameter("worker", CharField()), Parameter("lease", FloatField(null=True))


def claim(
    queue: "Queue", worker: str, limit: int, lease: float | None, metadata: Mapping[str, object] | None
) -> list[TaskClaim]:
    """Claim up to ``limit`` tasks of a queue for a worker, most urgent first."""
    settings, metadata = load_settings(), {} if metadata is None else metadata
    check_worker(worker)
    check_lease(lease, claims.longest_lease(task_model(), using=queue._state.db))
    check_metadata(metadata, settings.METADATA_LIMIT)
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= settings.CLAIM_LIMIT:
        raise TaskError(f"limit={limit!r} must be a whole number from 1 to {settings.CLAIM_LIMIT}")
    if held := _claim_at_once(queue, worker, limit, lease, metadata, settings):
        return held
    return _take(queue.current(asking=worker), limit, worker, lease, metadata)


def _claim_at_once(
    queue: "Queue", worker: str, limit: int, lease: float | None, metadata: Mapping[str, object], settings: TaskSettings
) -> list[TaskClaim]:
    """Claim tasks in the usual case. With ``metadata``, tasks are claimed only if enough of the first ones have it."""
    known = queue.__dict__.get("known", queue)
    if known.one_per_worker or not known.gives_at_once:
        return []
    limited = tuple([sieve.of(known.name) for sieve in SIEVES])
    any_queue = QueueTemplate(known, CLAIMING)
    asked, sought = None if lease is None else LEASE, METADATA if metadata else None
    claimed, is_noted = claims.claim_at_once(
        any_queue.tasks,
        (any_queue.key, settings, asked, sought, limited),
        limit,
        pick=partial(_pick, any_queue, sought, settings, limited),
        lease=partial(_lease_end, any_queue, asked, settings),
        also=CLAIMED,
        values={**any_queue.values, "worker": worker, "lease": lease, "metadata": metadata},
        among=partial(_among, any_queue) if metadata else None,
        worker=worker_digits(worker),
        using=any_queue.using,
    )
    for each in claimed:
        # Assigning ``queue`` would call the routers of the databases. Nothing else is cached for a claimed task.
        each.instance._state.fields_cache = {"queue": known}
    if claimed and not is_noted:
        queue.note_worker(worker)
    return [TaskClaim(each, worker) for each in sorted(claimed, key=_place_in_line)]


def _place_in_line(claim: claims.Claim) -> tuple[int, bool, int]:
    task = claim.instance
    return task.priority, task.worker_ids == [], task.pk


def _pick(
    queue: QueueTemplate, metadata: Parameter | None, settings: TaskSettings, limited: tuple[Hashable, ...], rows: Rows
) -> Rows:
    """Return the tasks of a queue of this configuration, and whether the worker was seen there lately."""
    lately: QuerySet[Claimant] = QuerySet(Claimant, using=queue.using).filter(
        queue=queue.pk, worker=WORKER, seen__gt=Later(-SEEN_EVERY)
    )
    asked_about = [sieve.asked_about(each) for sieve, each in zip(SIEVES, limited, strict=True)]
    is_restricted = reduce(or_, asked_about) if asked_about else Value(False)
    picked = picker(queue, WORKER, metadata, settings)(rows.filter(is_any(queue.same)))
    return picked.annotate(stator_odd=is_restricted, stator_flag=Q(is_any(lately)))


def _among(queue: QueueTemplate, rows: Rows) -> Rows:
    return in_line(queue, METADATA)(rows)


def _lease_end(queue: QueueTemplate, lease: Parameter | None, settings: TaskSettings) -> Later:
    return lease_end(lease, claims.longest_lease(queue.tasks, using=queue.using), settings, queue)


def _take(
    queue: "Queue", limit: int, worker: str, lease: float | None, metadata: Mapping[str, object]
) -> list[TaskClaim]:
    """Claim from a queue whose configuration is current."""
    model, using = queue.tasks.model, queue._state.db
    queue.note_worker(worker)
    if not queue.gives_tasks:
        return []
    if claims.bring_up(model, using=using):
        model.objects.using(using).end_exhausted(queue)
    for _ in range(TRIES):
        with suppress(IntegrityError):
            claimed, left_out = _claim(queue, worker, limit, lease, metadata)
            if claimed or not left_out:
                return claimed
    # On every try other workers were faster, or all claimed tasks were left out: nothing is left for this worker.
    return []


def _claim(
    queue: "Queue", worker: str, limit: int, lease: float | None, metadata: Mapping[str, object]
) -> tuple[list[TaskClaim], bool]:
    """Return new claims, and whether sieves left tasks out."""
    model, using, settings = queue.tasks.model, str(queue._state.db), load_settings()
    left_out: list[claims.Claim] = []

    def note(claimed: list[claims.Claim]) -> list[claims.Claim]:
        kept = claimed
        for sieve in SIEVES:
            kept = sieve.keep(queue, worker, kept)
        left_out[:] = [claim for claim in claimed if claim not in kept]
        runs.note(kept, worker, lease, using)
        return kept

    def lock() -> bool:
        # The lock comes before the check. So if one worker claims twice at once, the second claim sees the first.
        queue.lock()
        return not model.objects.using(using).held_by(worker).filter(queue=queue).exists()

    claimed = claims.claim(
        model,
        1 if queue.one_per_worker else limit,
        pick=picker(queue, worker, metadata, settings),
        lease=lease_end(lease, claims.longest_lease(model, using=using), settings, queue),
        worker=worker_digits(worker),
        using=using,
        first=lock if queue.one_per_worker else None,
        then=note,
        among=in_line(queue, metadata) if metadata else None,
    )
    for claim in claimed:
        claim.instance.queue = queue
    return [TaskClaim(claim, worker) for claim in sorted(claimed, key=_place_in_line)], bool(left_out)
