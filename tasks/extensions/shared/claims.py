"""No worker gets two parts of one shared task."""

from typing import TYPE_CHECKING

from django.db.models import F, OuterRef, Q

from stator import claims
from tasks.queue.claiming import SIEVES, Sieve
from tasks.queue.eligibility import IS_REJECTION, LIMITED, PART, RULES, Asking, Rule, is_mine
from tasks.queue.expressions import is_any
from tasks.rows.tables import run_rows

if TYPE_CHECKING:
    from tasks.models import Queue

# Conditions of runs.
HAS_PART = Q(outcome="succeeded", task__state="completed") | Q(task__state_claim=F("token"))
HAD_PART = Q(version=F("task__state_version"))


def connect() -> None:
    """Let claims obey this."""
    RULES.append(Rule("no_eligible_worker", PART, has_no_part))
    SIEVES.append(Sieve(lambda queue: None, lambda of: Q(whole__isnull=False), without_second_parts))


def has_no_part(asking: Asking) -> Q:
    """Return the condition that a worker had and holds no other part of a shared task, even if it may have tasks again.

    A process gets only the first part that waits, so that one claim does not take two.
    """
    if asking.queue is not None:
        had = HAS_PART if asking.queue.same_worker_again else HAS_PART | (HAD_PART & IS_REJECTION)
        same = {"task__whole": OuterRef("whole"), "task__shard": OuterRef("shard")}
        of_parts = run_rows(asking.rows.db).filter(had, worker=asking.worker, **same)
        return Q(whole=None) | ~Q(is_any(of_parts))
    in_the_way = Q(is_any(asking.runs.filter(HAS_PART)))
    if LIMITED in asking.in_force:
        limited = Q(queue__worker_retries__isnull=False, queue__same_worker_again=False)
        in_the_way |= limited & Q(is_any(asking.runs.filter(HAD_PART, IS_REJECTION)))
    if asking.process:
        in_the_way |= Q(pk__lt=OuterRef("pk"), state="pending", state_ready=True) | is_mine(asking.process)
    parts = asking.rows.filter(whole=OuterRef("whole"), shard=OuterRef("shard"))
    return Q(whole=None) | ~Q(is_any(parts.filter(in_the_way)))


def without_second_parts(queue: "Queue", worker: str, claimed: list[claims.Claim]) -> list[claims.Claim]:
    """Drop claims on parts of a shared task if the worker holds another part of it, even by a concurrent claim.

    The shared task is not locked, because other transactions lock its parts after it.
    """
    wholes = {claim.instance.whole_id for claim in claimed} - {None}
    if not wholes:
        return claimed
    # A concurrent claim for the same worker waits here, and then sees what was claimed.
    queue.lock_worker(worker)
    tokens = {claim.token for claim in claimed}
    runs = run_rows(queue._state.db)
    held = runs.filter(worker=worker, task__whole__in=wholes, task__state_claim=F("token")).exclude(token__in=tokens)
    taken = set(held.values_list("task__whole", flat=True))
    kept = []
    for claim in claimed:
        whole = claim.instance.whole_id
        if whole is None or whole not in taken:
            kept.append(claim)
            taken.add(whole)
    return kept
