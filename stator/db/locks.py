"""Lock timeouts of a worker's statements, and which of its steps are skipped after one.

A migration may lock a table for minutes. A statement that waited for it would hold up its thread's work for other
models, so it gives up soon and is tried again later.
"""

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from django.db import DatabaseError

from stator.db.retry import is_of_remote, suspends
from stator.db.suspensions import ResumptionPace, Suspension, Suspensions
from stator.scopes import PATHS, Scope
from stator.texts import one_line

if TYPE_CHECKING:
    from stator.db.interface import Operations

logger = logging.getLogger("stator.worker")

# Seconds that a statement waits for a lock: longer than commits of other transactions usually take.
WAIT = 0.5

# Seconds that it waits after a timeout in a step of the model, so that retries cost the other models little.
PROBE = 0.1

# Seconds until a step is tried again, at first and at most. Some time after that, a skipped step says nothing about the
# table any more.
FIRST_SECONDS, MAX_SECONDS = 0.2, 2.0
PACE = ResumptionPace(FIRST_SECONDS, MAX_SECONDS, stale=10.0, varies=True)

LOCKED, AWAY = "another session locks its table", "the node with its rows cannot be reached"


class Locks(Suspensions):
    """The steps of a worker, such as its claims, that timed out waiting for a lock on a table of one model.

    The step of a model whose node is away is skipped in the same way.
    ``held``: the steps that have timed out and were not taken since.
    ``wait``: seconds that the next statement may wait for a lock; None for as long as the session allows.
    """

    def __init__(self, label: str, wait: float | None = None, path: str = "") -> None:
        super().__init__(PACE)
        self.wait = wait
        self._given = label, wait, path
        self._fields = {"model": label, **PATHS.fields(path)}
        self._usual = wait

    def shortest(self, wait: float | None) -> float | None:
        """Return the seconds to wait for the next lock if the caller allows ``wait``; None for no limit."""
        return min((each for each in (self.wait, wait) if each is not None), default=None)

    @contextmanager
    def tried(self, step: str) -> Iterator[None]:
        """Take a step; if it times out waiting for a lock, skip it for a while and raise the error."""
        try:
            yield
        except Exception as error:
            self.note(step, error)
            raise
        if self.held:
            self.end(step)

    @contextmanager
    def spared(self, step: str) -> Iterator[None]:
        """Take a step on one of several nodes; if that node is away, skip the step for a while and raise nothing."""
        try:
            with self.tried(step):
                yield
        except DatabaseError as error:
            if not is_of_remote(error):
                raise

    def alike(self) -> "Locks":
        """Return locks of the same model for the rows on one of several nodes."""
        return Locks(*self._given)

    def doubt(self, step: str) -> None:
        """Make a step wait only briefly for locks: it has timed out together with the step of other models."""
        with self._lock:
            self._keep({step: Suspension(step, LOCKED, 0.0, 0)} | self.held)

    def note(self, step: str, error: BaseException) -> None:
        """Skip a step for a while, if it has timed out waiting for a lock, or the node with the rows is away."""
        if not suspends(error):
            return
        with self._lock:
            suspension = self.suspend(step, AWAY if is_of_remote(error) else LOCKED)
            if suspension.times > 1 or self._are_known(self.held.keys() - {step}):
                return
        fields = {**self._fields, "step": step}
        if is_of_remote(error):
            logger.warning("stator.node_unreachable", extra={**fields, "message_text": one_line(error)})
        else:
            logger.warning("stator.lock_timeout", extra=fields)

    def end(self, key: Hashable) -> Suspension | None:
        """Note that a step was taken without a timeout."""
        with self._lock:
            ended = super().end(key)
            if ended and ended.times and not self._are_known(self.held):
                logger.info("stator.node_reached" if ended.reason is AWAY else "stator.lock_gone", extra=self._fields)
            return ended

    def _are_known(self, held: Iterable[Hashable]) -> bool:
        """Return whether one of some steps has timed out by itself, so that this is logged already."""
        return any(self.held[step].times for step in held)

    def _keep(self, held: dict[Hashable, Suspension]) -> None:
        super()._keep(held)
        self.wait = self._usual if not held or self._usual is None else min(self._usual, PROBE)


def limit_waits(group: "Iterable[Operations]") -> None:
    """Limit how long the statements of a worker's operations wait for locks."""
    made: dict[tuple[Scope, str], Locks] = {}
    for operations in group:
        label = operations.label if operations.capabilities.locks_tables else f"database {operations.alias!r}"
        locks = Locks(label, operations.longest_wait, operations.scope.path)
        operations.locks = made.setdefault((operations.scope, label), locks)


def together(group: "list[Operations]", step: str, act: Callable[..., object]) -> None:
    """Take a step for several models at once: ``act(*group)``. Models with locked tables are skipped for a while.

    After a timeout it is not known which model is locked, so the step is taken for each model by itself.
    """
    held = [operations for operations in group if operations.locks.held]
    parts = [[operations for operations in group if operations not in held], *([each] for each in held)]
    for part in filter(None, parts):
        try:
            if len(part) > 1:
                act(*part)
            elif part[0].locks.allow(step):
                with part[0].locks.tried(step):
                    act(*part)
        except Exception as error:
            if not suspends(error):
                raise
            if len(part) > 1:
                for operations in part:
                    operations.locks.doubt(step)
                    parts.append([operations])
