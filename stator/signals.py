"""Signals of the framework, sent after the commit of what they tell.

``transitioned``: ``sender`` the model, ``moves`` a list of :class:`Move`, ``using`` the database alias.
``failed``: ``sender`` the model, ``failures`` a list of ``(pk, Failure)``, ``using``.
``lease_lost``: ``sender`` the model, ``pks`` of the objects whose outcome was refused, ``using``.
``became_ready``: objects of ``sender`` may be claimed on ``using``; workers are woken by it.
``on_start`` and ``on_schedule``: ``sender`` the worker; at its start and at each scheduling pass, in
a thread with a database connection of its own, for a project to refresh its own configuration. Sent again
when a receiver finds the database away. At a pass ``databases`` are the aliases in which the worker works, and
``sender.databases_of(model)`` those in which it works on a model.
"""

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
became_ready = Signal()
on_start = Signal()
on_schedule = Signal()


def announce(model: Any, using: str) -> None:
    """Send ``became_ready`` once the present transaction commits; a receiver that raises is logged."""
    transaction.on_commit(lambda: became_ready.send(model, using=using), using=using, robust=True)
