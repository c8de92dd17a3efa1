"""LISTEN on a connection of its own, with a check that notifications arrive; polling goes on in any case."""

import logging
import random
import selectors
import socket
import threading
import time
from collections.abc import Callable

import psycopg
from django.db import connections

from stator.rows.wakeup import CHANNEL, NOTIFY
from stator.texts import one_line

logger = logging.getLogger("stator.worker")

# Behind a pooler a listener gets neither notifications nor an error, so it notifies itself now and then.
PING_INTERVAL = 30.0
PING_TIMEOUT = 5.0

# Seconds until it connects again.
MIN_DELAY, MAX_DELAY = 0.1, 5.0

# Seconds without any notification before that is reported: restarts of a server pass.
PATIENCE = 15.0

UNHEARD = "its own notification does not come back, as behind a pooler"


class Listener:
    """A thread that calls ``heard(payload)`` for each notification.

    ``alive`` is False while notifications do not arrive: behind a pooler in transaction mode, or during an outage.
    """

    def __init__(self, alias: str, dsn: str, heard: Callable[[str], None]) -> None:
        self.alive = False
        self.alias = alias
        self._dsn = dsn
        self._heard = heard
        self._stopped = threading.Event()
        # Readable once the listener is to stop, which ends the wait for notifications at once.
        self._ear, self._mouth = socket.socketpair()
        self._ping = f"ping:{random.getrandbits(48):012x}"
        self._pinged = self._answered = 0.0
        # Why nothing arrives, and since when.
        self._reason, self._since = "", 0.0
        self._thread = threading.Thread(target=self._work, name=f"stator-listen-{alias}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def trouble(self) -> str:
        """Why no notifications arrive, if that lasts; else ""."""
        return self._reason if self._reason and time.monotonic() - self._since > PATIENCE else ""

    def stop(self, timeout: float) -> None:
        """End the thread."""
        self._stopped.set()
        self._mouth.close()
        self._thread.join(timeout)
        self._ear.close()

    def _work(self) -> None:
        delay = MIN_DELAY
        while not self._stopped.is_set():
            try:
                with self._connect() as connection:
                    self._listen(connection)
            except Exception as error:  # noqa: BLE001 - nobody would notice the end of this thread, and polls go on
                message = one_line(error)
                fields = {"alias": self.alias, "error": type(error).__name__, "message_text": message}
                logger.warning("stator.listen_failed", extra=fields)
                self._note(f"{type(error).__name__}: {message}")
            # A new connection alone does not reset the delay: an error that follows each time would repeat without one.
            delay = MIN_DELAY if self.alive else min(MAX_DELAY, 2 * delay)
            self.alive = False
            self._stopped.wait(delay * random.uniform(0.8, 1.2))

    def _connect(self) -> psycopg.Connection:
        if self._dsn:
            return psycopg.connect(self._dsn, autocommit=True)
        wrapper = connections[self.alias]
        params = {name: value for name, value in wrapper.get_connection_params().items() if name != "pool"}
        params.pop("cursor_factory", None)
        return psycopg.connect(**params, autocommit=True)

    def _listen(self, connection: psycopg.Connection) -> None:
        connection.execute(f"LISTEN {CHANNEL}")
        self._pinged = 0.0
        with selectors.DefaultSelector() as selector:
            for readable in (connection, self._ear):
                selector.register(readable, selectors.EVENT_READ)
            while not self._stopped.is_set():
                self._check(connection)
                selector.select(PING_TIMEOUT)
                for notification in connection.notifies(timeout=0):
                    self._take(notification.payload)

    def _check(self, connection: psycopg.Connection) -> None:
        now = time.monotonic()
        if now - self._pinged > PING_INTERVAL:
            self._pinged = now
            connection.execute(NOTIFY, [CHANNEL, self._ping])
        elif self._answered < self._pinged < now - PING_TIMEOUT:
            if self.alive or not self._answered:
                logger.warning("stator.listen_unheard", extra={"alias": self.alias})
            self.alive = False
            self._answered = self._pinged
            self._note(UNHEARD)

    def _note(self, reason: str) -> None:
        if not self._reason:
            self._since = time.monotonic()
        self._reason = reason

    def _take(self, payload: str) -> None:
        if payload == self._ping:
            self.alive, self._answered, self._reason = True, time.monotonic(), ""
        elif not payload.startswith("ping:"):
            self._heard(payload)
