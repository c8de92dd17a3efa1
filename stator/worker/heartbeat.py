"""Extends the leases of what still runs, from a thread that runs no handler and does not need the event loop."""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from django.db import DatabaseError, InterfaceError, connections

from stator.db import Operations
from stator.db.claim import Claim
from stator.failures import bounded
from stator.worker.outage import Outages
from stator.worker.presence import Presence
from stator.worker.threads import tidy_connections

logger = logging.getLogger("stator.worker")


class Heartbeat:
    """Renews claims older than a third of their lease, until their attempt is past its time limit.

    ``held`` gives the claims that are running or not yet recorded; ``ended`` is told the ``id()`` of those whose
    claim turned out to have ended. ``presence`` is shown as well, and ends with the thread.
    """

    def __init__(
        self,
        held: Callable[[], list[Claim]],
        ended: Callable[[set[int]], None],
        interval: float,
        presence: Presence,
    ) -> None:
        self._held = held
        self._ended = ended
        self._interval = interval
        self._presence = presence
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, name="stator-heartbeat", daemon=True)
        self.beats = 0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End the thread."""
        self._stopped.set()
        self._thread.join(timeout)

    def beat(self) -> None:
        """Renew what is old enough, one statement per model and batch; a database that is away holds up no other."""
        now = time.monotonic()
        groups: dict[Operations, list[Claim]] = defaultdict(list)
        for claim in self._held():
            if _wants_renewal(claim, now):
                groups[claim.operations].append(claim)
        outages = Outages()
        for operations, claims in groups.items():
            if operations.alias not in outages:
                with outages.noted(operations.alias):
                    self._renew(operations, claims)
        outages.tell()

    def _renew(self, operations: Operations, claims: list[Claim]) -> None:
        sent = time.monotonic()
        ended = operations.renew(claims)
        for claim in claims:
            if id(claim) not in ended:
                claim.deadline = sent + 0.8 * claim.lease
        if ended:
            self._ended(ended)

    def _work(self) -> None:
        self._reach(self._presence.show)
        while not self._stopped.wait(self._interval):
            self.beats += 1
            self._reach(self.beat)
            self._reach(self._presence.show)
        self._reach(self._presence.leave)
        connections.close_all()

    def _reach(self, step: Callable[[], None]) -> None:
        try:
            step()
        except (DatabaseError, InterfaceError) as error:
            # The leases run on; the worker stops what is past its own deadline.
            told = bounded(" ".join(str(error).split()), 300)
            logger.warning("stator.heartbeat_failed", extra={"error": type(error).__name__, "message_text": told})
        tidy_connections()


def _wants_renewal(claim: Claim, now: float) -> bool:
    renewed = claim.deadline - 0.8 * claim.lease
    runs_too_long = claim.started and now - claim.started > claim.max_runtime
    return now - renewed > claim.lease / 3 and not runs_too_long and claim.cancelled_for != "lease"


def interval_for(leases: list[Any]) -> float:
    """Seconds between beats, so that each lease is looked at several times before a third of it is over."""
    return max(0.05, min([5.0, *(lease / 12 for lease in leases)]))
