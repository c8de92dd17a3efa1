"""Signals of the framework. The first five are sent after the commit of the event.

``transitioned``: ``sender`` is the model, ``moves`` a list of :class:`Move`, ``using`` the database alias.
``failures`` is as in ``failed``, for moves caused by an error. ``instances`` maps some keys to the instances that a
program had claimed.
``failed``: ``sender`` is the model, ``failures`` a list of ``(pk, Failure)``, ``using`` the alias.
``lease_lost``: ``sender`` is the model, ``pks`` the objects whose outcome was refused because the lease had run out,
``using`` the alias.
``claim_ended``: as ``lease_lost``, for objects that were moved, unlocked, cancelled or deleted during their attempt.
``became_ready``: objects of ``sender`` may be claimed on ``using``; it wakes workers, unless ``wakes`` is False.
``on_heartbeat``: ``sender`` is the worker; sent every 10 s from its heartbeat thread, before it reports to the table of
workers. A receiver may return a dictionary, which is stored in ``Worker.published``. It must return quickly.
``on_start`` and ``on_schedule``: ``sender`` is the worker; sent before it claims anything, and at each scheduling pass.
A project can refresh its configuration in them. They are sent in a thread with a database connection of its own, and
again if a receiver cannot reach the database. At a pass, ``databases`` are the aliases of the worker, and
``sender.databases_of(model)`` returns the ones where it serves a model.
"""

import logging
from collections.abc import Sequence
from contextvars import copy_context
from typing import Any, NamedTuple, Protocol

from django.db.models import Model
from django.dispatch import Signal

logger = logging.getLogger("stator.worker")


class Move(NamedTuple):
    """The move of one object from one state to another."""

    # Of the type of the keys of the model.
    pk: Any
    source: str
    to: str


class ServingWorker(Protocol):
    """The worker that sends ``on_schedule``."""

    def databases_of(self, model: type[Model]) -> list[str]:
        """Return the databases where it serves a model."""


transitioned = Signal()
failed = Signal()
lease_lost = Signal()
claim_ended = Signal()
became_ready = Signal(use_caching=True)
on_heartbeat = Signal()
on_start = Signal()
on_schedule = Signal()


def send_contained(signal: Signal, sender: object, **values: object) -> Sequence[tuple[object, object]]:
    """Send a signal as ``send_robust`` does, in a context of its own; also return errors that it lets through.

    Such errors are ``SystemExit`` and the like; no further receiver is called after one.
    """
    try:
        return copy_context().run(signal.send_robust, sender, **values)
    except BaseException as error:  # noqa: BLE001 - a receiver must not end the worker
        return [(signal, error)]


def send_logged(signal: Signal, sender: object, **values: object) -> None:
    """Send a signal of what is committed: a receiver that raises undoes nothing, and is logged."""
    for receiver, answer in send_contained(signal, sender, **values):
        if isinstance(answer, BaseException):
            logger.error("stator.receiver_failed", extra={"receiver": repr(receiver)}, exc_info=answer)
