"""Extension of the leases of running attempts, from a thread that needs neither handlers nor the event loop."""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from stator.db.interface import Claim, Operations
from stator.graph.outcomes import Released
from stator.rows.news import has_news, write_news
from stator.texts import one_line
from stator.worker.connections import own_connections
from stator.worker.outage import Outages
from stator.worker.parts import Shown
from stator.worker.threads import is_open, open_connection, tidy_connections

logger = logging.getLogger("stator.worker")


# The step that extends leases.
RENEW = "renew"

# The outcome of attempts whose own outcome could not be recorded.
UNRECORDED = Released(reason="the outcome of the attempt could not be recorded", begun=True)

# The least number of seconds that a renewal waits for a lock, however many models there are.
MIN_WAIT = 0.01

# Seconds between attempts to connect.
DELAYS = (0.2, 0.5, 1.0, 2.0)


class Heartbeat:
    """Renews leases, most of them after a third of their time, until the attempt is past its time limit.

    The thread also writes how far attempts are, and refreshes what is ``shown`` of the worker.

    ``held`` returns the claims that run or are not recorded yet.
    ``ended`` gets the ``id()`` of claims that have ended.
    ``aliases``: databases that it keeps connected; ``connected`` is called after a connection was opened.
    ``unrecorded`` returns, by database, the claims whose outcomes cannot be recorded because the worker has no
    connection. If that lasts for ``patience`` seconds while the heartbeat reaches the database, these claims are
    released, and ``handed_back`` gets their ``id()``.
    """

    def __init__(
        self,
        held: Callable[[], list[Claim]],
        ended: Callable[[set[int]], object],
        interval: float,
        shown: Sequence[Shown] = (),
        *,
        aliases: Iterable[str] = (),
        connected: Callable[[], object] = lambda: None,
        unrecorded: Callable[[], dict[str, list[Claim]]] = dict,
        handed_back: Callable[[set[int]], object] = lambda keys: None,
        patience: float = 60.0,
    ) -> None:
        self._held = held
        self._ended = ended
        self._interval = interval
        self._shown = shown
        self._aliases = tuple(aliases)
        self._connected = connected
        self._unrecorded = unrecorded
        self._handed_back = handed_back
        self._patience = patience
        # By database that the heartbeat reaches: since when it has such claims.
        self._hopeless: dict[str, float] = {}
        self.connections: dict[str, BaseDatabaseWrapper] = {}
        self._failed = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, name="stator-heartbeat", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End the thread."""
        self._stopped.set()
        self._thread.join(timeout)

    def is_connected(self, alias: str) -> bool:
        """Return whether the heartbeat has an open connection, as far as is known; sends nothing."""
        return is_open(self.connections.get(alias))

    def beat(self) -> None:
        """Renew the claims that are old enough, with one statement per model and batch.

        Neither an unreachable database nor a locked table delays the renewals of other models. Locked models come last.
        All renewals together wait no longer than a third of the shortest lease.
        """
        now = time.monotonic()
        groups = _by_model([claim for claim in self._held() if _wants_renewal(claim, now)])
        outages = Outages()
        leases = [claim.lease for claims in groups.values() for claim in claims]
        wait = max(MIN_WAIT, min(leases, default=0.0) / 3 / max(1, len(groups)))
        for operations, claims in sorted(groups.items(), key=lambda group: bool(group[0].locks.held)):
            if operations.alias not in outages:
                with outages.noted(operations.alias), operations.locks.tried(RENEW):
                    self._renew(operations, claims, wait)
        self._hand_back(outages)
        outages.raise_first()

    def _renew(self, operations: Operations, claims: list[Claim], wait: float) -> None:
        sent = time.monotonic()
        with operations.scope.enter():
            ended = operations.renew(claims, wait=wait)
        for claim in claims:
            if id(claim) in ended:
                claim.taken_back = claim.ended_in_time
            else:
                claim.deadline = sent + 0.8 * claim.lease
        if ended:
            self._ended(ended)

    def _hand_back(self, outages: Outages) -> None:
        """Release claims whose outcomes the worker cannot record, so that other workers may claim the rows."""
        unrecorded, now = self._unrecorded(), time.monotonic()
        self._hopeless = {
            alias: self._hopeless.get(alias, now)
            for alias in unrecorded
            if alias not in outages and self.is_connected(alias)
        }
        for alias, since in self._hopeless.items():
            if now - since < self._patience:
                continue
            for operations, claims in _by_model(unrecorded[alias]).items():
                with outages.noted(alias), operations.locks.tried(RENEW), operations.scope.enter():
                    # The next beat releases the rest.
                    some = claims[: operations.settings.BATCH_SIZE]
                    operations.record([(claim, UNRECORDED) for claim in some])
                    logger.warning("stator.handed_back", extra={"model": operations.label, "count": len(some)})
                    self._handed_back({id(claim) for claim in some})

    def show_news(self) -> None:
        """Write what attempts say of themselves that have run for longer than a beat, with one statement per model."""
        before, outages = time.monotonic() - self._interval, Outages()
        news = [claim for claim in self._held() if has_news(claim) and not claim.finished]
        for operations, claims in _by_model([claim for claim in news if claim.started < before]).items():
            with outages.noted(operations.alias), operations.scope.enter(), operations.transaction():
                write_news(operations, claims)
        outages.raise_first()

    def _work(self) -> None:
        own_connections(watch=False)
        self.connections.update((alias, connections[alias]) for alias in self._aliases)
        self._live()
        while not self._stopped.wait(self._delay()):
            self._live(self.beat, self.show_news)
        for each in self._shown:
            self._reach(each.leave)
        connections.close_all()

    def _live(self, *turns: Callable[[], None]) -> None:
        self._reach(self._connect)
        # Without any connection, the others would fail with this error too.
        if not self._aliases or any(map(self.is_connected, self._aliases)):
            for turn in (*turns, *(each.show for each in self._shown)):
                self._reach(turn)

    def _delay(self) -> float:
        if all(map(self.is_connected, self._aliases)):
            self._failed = 0
            return self._interval
        self._failed += 1
        return min(self._interval, DELAYS[min(self._failed, len(DELAYS)) - 1])

    def _connect(self) -> None:
        """Open the connections that are closed; raise if that is not possible."""
        outages = Outages()
        for alias in self._aliases:
            if not self.is_connected(alias):
                with outages.noted(alias):
                    open_connection(alias)
                    self._connected()
        outages.raise_first()

    def _reach(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - without this thread, the worker would lose every lease it takes
            # The leases run on; the worker ends attempts past their deadline.
            fields = {"error": type(error).__name__, "message_text": one_line(error)}
            logger.warning("stator.heartbeat_failed", extra=fields)
        tidy_connections()


def _by_model(claims: list[Claim]) -> dict[Operations, list[Claim]]:
    groups: dict[Operations, list[Claim]] = defaultdict(list)
    for claim in claims:
        groups[claim.operations].append(claim)
    return groups


def _wants_renewal(claim: Claim, now: float) -> bool:
    renewed = claim.deadline - 0.8 * claim.lease
    runs_too_long = claim.started and now - claim.started > claim.max_runtime
    return now - renewed > claim.heartbeat and not runs_too_long and claim.cancelled_for != "lease"


def interval_for(leases: list[float]) -> float:
    """Return the seconds between beats, so that each lease is checked several times within a third of its length."""
    return max(0.05, min([5.0, *(lease / 12 for lease in leases)]))
