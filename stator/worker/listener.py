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

logger = logging.getLogger("stator.worker")

# Behind a pooler a listener gets neither notifications nor an error, so it notifies itself now and then.
PING_INTERVAL = 30.0
PING_TIMEOUT = 5.0


class Listener:
    """A thread that calls ``heard(label)`` for each notification.

    ``alive`` is False while notifications do not arrive: behind a pooler in transaction mode, or during an outage.
    """

    def __init__(self, alias: str, dsn: str, heard: Callable[[str], None]) -> None:
        self.alive = False
        self._alias = alias
        self._dsn = dsn
        self._heard = heard
        self._stopped = threading.Event()
        # Readable once the listener is to stop, which ends the wait for notifications at once.
        self._ear, self._mouth = socket.socketpair()
        self._ping = f"ping:{random.getrandbits(48):012x}"
        self._pinged = self._answered = 0.0
        self._thread = threading.Thread(target=self._work, name=f"stator-listen-{alias}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End the thread."""
        self._stopped.set()
        self._mouth.close()
        self._thread.join(timeout)
        self._ear.close()

    def _work(self) -> None:
        pause = 0.1
        while not self._stopped.is_set():
            try:
                with self._connect() as connection:
                    pause = 0.1
                    self._listen(connection)
            except (psycopg.Error, OSError) as error:
                logger.warning("stator.listen_failed", extra={"alias": self._alias, "error": type(error).__name__})
            self.alive = False
            self._stopped.wait(pause * random.uniform(0.8, 1.2))
            pause = min(5.0, 2 * pause)

    def _connect(self) -> psycopg.Connection:
        if self._dsn:
            return psycopg.connect(self._dsn, autocommit=True)
        wrapper = connections[self._alias]
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
                logger.warning("stator.listen_unheard", extra={"alias": self._alias})
            self.alive = False
            self._answered = self._pinged

    def _take(self, payload: str) -> None:
        if payload == self._ping:
            self.alive, self._answered = True, time.monotonic()
        elif not payload.startswith("ping:"):
            self._heard(payload)
