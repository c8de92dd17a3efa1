"""The limits of actions in claims of named workers. They are declared in the code of the process that claims."""

import logging
from operator import itemgetter
from typing import TYPE_CHECKING

from django.db.models import Q

from stator import claims
from tasks.actions.registry import RegisteredAction, declared, of_registry, registry
from tasks.chores.retention import FURTHER
from tasks.extensions.throttles.models import ActionSlot, prune
from tasks.queue.claiming import SIEVES, Sieve

if TYPE_CHECKING:
    from tasks.models import Queue, Task

logger = logging.getLogger("tasks.queues")


def connect() -> None:
    """Let claims of named workers obey the limits, and delete what nobody uses any more."""
    SIEVES.append(Sieve(limited_in, lambda names: Q(action__in=sorted(names)), within_limits))
    FURTHER.append(prune)


@of_registry
def limited_in(queue: str) -> frozenset[str]:
    """Return the actions with a rate or a concurrency limit for tasks of a queue."""
    actions = ((name, declared(name, queue)) for name in list(registry))
    return frozenset(name for name, each in actions if each is not None and each.admitted_by)


def within_limits(queue: "Queue", worker: str, claimed: list[claims.Claim]) -> list[claims.Claim]:
    """Put off the tasks whose actions have used up their rate or concurrency, and return the claims of the others.

    Limits are taken in the order of their keys, so that two claims do not wait for each other.
    """
    limited = []
    for claim in claimed:
        action = declared(claim.instance.action, queue.name)
        if action is not None and action.admitted_by and (key := _key_of(action, claim.instance)) is not None:
            limited.append((key, claim.pk, action, claim))
    refused = []
    for _, _, action, claim in sorted(limited, key=itemgetter(0, 1)):
        wait, _ = ActionSlot.admit(action, claim.instance, claim.token)
        if wait:
            claims.end([(claim, claims.Released(wait))])
            refused.append(claim)
    return [claim for claim in claimed if claim not in refused]


def _key_of(action: RegisteredAction, task: "Task") -> str | None:
    """Return the key under which a task counts; None if the project's function fails, which must not stop the queue."""
    try:
        return action.throttle_key(task)
    except Exception:
        logger.exception("tasks.key_failed", extra={"action": action.name, "task": task.pk})
        return None
