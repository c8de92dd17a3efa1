"""Signals of the framework, sent after the commit of what they tell.

``transitioned``: ``sender`` the model, ``moves`` a list of :class:`Move`, ``using`` the database alias; ``failures`` as
in ``failed``, of the moves that an error made.
``failed``: ``sender`` the model, ``failures`` a list of ``(pk, Failure)``, ``using``.
``lease_lost``: ``sender`` the model, ``pks`` of the objects whose outcome was refused, ``using``.
``became_ready``: objects of ``sender`` may be claimed on ``using``; workers are woken by it.
``on_start`` and ``on_schedule``: ``sender`` the worker; before it claims anything and at each scheduling pass, in
a thread with a database connection of its own, for a project to refresh its own configuration. Sent again
when a receiver finds the database away. At a pass ``databases`` are the aliases in which the worker works, and
``sender.databases_of(model)`` those in which it works on a model.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

from django.db import transaction
from django.dispatch import Signal


class Move(NamedTuple):
    """One object that went from one state to another."""

    pk: Any
    source: str
    to: str


transitioned = Signal()
failed = Signal()
lease_lost = Signal()
became_ready = Signal(use_caching=True)
on_start = Signal()
on_schedule = Signal()


def announce(model: Any, using: str) -> None:
    """Send ``became_ready`` once the present transaction commits; a receiver that raises is logged.

    Where a project manages transactions by hand nobody knows when that is, and workers find the objects by themselves.
    """
    connection = transaction.get_connection(using)
    if not connection.in_atomic_block:
        if connection.autocommit:
            became_ready.send_robust(model, using=using)
        return
    tell, waiting = _telling(model, using), connection.run_on_commit
    # Many objects of one transaction are told of once.
    if not (waiting and waiting[-1][1] is tell and waiting[-1][0] == set(connection.savepoint_ids)):
        connection.on_commit(tell)


@lru_cache(maxsize=1024)
def _telling(model: Any, using: str) -> Callable[[], Any]:
    return partial(became_ready.send_robust, model, using=using)
