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

from collections.abc import Callable
from contextvars import copy_context
from functools import lru_cache, partial
from typing import Any, NamedTuple, Protocol

from django.db import transaction
from django.db.models import Model
from django.dispatch import Signal


class Move(NamedTuple):
    """The move of one object from one state to another."""

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
# Wakes workers. It is not the signal of projects, because nobody has to be woken in the transaction of a test.
wanted = Signal(use_caching=True)
on_heartbeat = Signal()
on_start = Signal()
on_schedule = Signal()


def send_contained(signal: Signal, sender: object, **values: Any) -> list[tuple[Any, object]]:
    """Send a signal as ``send_robust`` does, in a context of its own; also return errors that it lets through.

    Such errors are ``SystemExit`` and the like; no further receiver is called after one.
    """
    try:
        return copy_context().run(signal.send_robust, sender, **values)
    except BaseException as error:  # noqa: BLE001 - a receiver must not end the worker
        return [(signal, error)]


def announce(model: type[Model], using: str, *, wakes: bool = True) -> None:
    """Send ``became_ready`` once the current transaction commits; errors of receivers are logged.

    ``wakes``: whether workers may take the objects. If not, only receivers in this process are called.
    With autocommit off and no ``atomic`` block, the commit cannot be noticed: workers find the objects by polling.
    """
    connection = transaction.get_connection(using)
    if not connection.in_atomic_block:
        if connection.autocommit:
            _send(model, using, wakes)
        return
    if connection.atomic_blocks[0]._from_testcase and not became_ready.has_listeners(model):
        # Never committed, and a project's test may count the functions that its own code adds.
        return
    send, registered = _sender_of(model, using, wakes), connection.run_on_commit
    # The signal is sent once for many objects of one transaction.
    if not (registered and registered[-1][1] is send and registered[-1][0] == set(connection.savepoint_ids)):
        connection.on_commit(send)


@lru_cache(maxsize=1024)
def _sender_of(model: type[Model], using: str, wakes: bool) -> Callable[[], object]:
    return partial(_send, model, using, wakes)


def _send(model: type[Model], using: str, wakes: bool) -> None:
    became_ready.send_robust(model, using=using, wakes=wakes)
    if wakes:
        wanted.send_robust(model, using=using)
