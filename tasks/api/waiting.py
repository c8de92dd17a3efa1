"""Waiting requests: each holds a thread, but no transaction and no connection.

While any request waits, one thread per process polls the database for ready tasks in the awaited queues and wakes their
requests. A commit in this process wakes all waiting requests at once.
"""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from django.db import DatabaseError, InterfaceError, connections
from django.db.models import Exists, OuterRef

from stator.claims import bring_up
from stator.signals import became_ready
from tasks.api.errors import Busy
from tasks.models import Queue, Task
from tasks.sharding.replicas import awake, rest
from tasks.sharding.task_ids import home

Claimed = TypeVar("Claimed")

logger = logging.getLogger("tasks.api")

READY = Task.objects.filter(queue=OuterRef("pk"), state_ready=True, state_claim=None)

POLL_INTERVAL = 0.2
# Seconds between polls after a failed one.
LONG_PAUSE = 1.0
# Seconds between two tries of one request. It may be woken by tasks that it may not claim: other metadata, or an
# exclusive value that is taken.
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 0.4


class Waiters:
    """The waiting requests of this process."""

    def __init__(self) -> None:
        self._waiting: dict[threading.Event, int] = {}
        self._lock = threading.Lock()
        self._watched = False

    def __len__(self) -> int:
        return len(self._waiting)

    @contextmanager
    def join(self, queue: int, most: int) -> Iterator[threading.Event]:
        """Yield an event that is set when a new try is worthwhile; raise ``Busy`` if ``most`` requests wait already."""
        woken = threading.Event()
        with self._lock:
            if len(self._waiting) >= most:
                raise Busy(f"this server process already has {most} waiting claims, its maximum; try again", 1)
            self._waiting[woken] = queue
            start, self._watched = not self._watched, True
        if start:
            threading.Thread(target=self._watch, name="tasks-api-waiting", daemon=True).start()
        try:
            yield woken
        finally:
            with self._lock:
                del self._waiting[woken]

    def wake(self, queues: set[int] | None = None) -> None:
        """Wake the requests that wait for these queues, or all."""
        with self._lock:
            for woken, queue in self._waiting.items():
                if queues is None or queue in queues:
                    woken.set()

    def _watch(self) -> None:
        """Poll until no request waits."""
        while queues := self._waited_for():
            pause = POLL_INTERVAL
            try:
                bring_up(Task)
                self.wake(with_ready(queues))
            except (DatabaseError, InterfaceError) as error:
                logger.warning("tasks.api_watch_failed", extra={"error": type(error).__name__})
                connections.close_all()
                pause = LONG_PAUSE
            time.sleep(pause)
        connections.close_all()

    def _waited_for(self) -> set[int]:
        with self._lock:
            self._watched = bool(self._waiting)
            return set(self._waiting.values())


def with_ready(queues: set[int]) -> set[int]:
    """Return the queues that have a ready task; index ``tasks_task_ready_in_queue``."""
    asked = Queue.objects.filter(pk__in=queues).values_list("pk", "name", "databases", Exists(READY))
    found: set[int] = set()
    elsewhere: dict[str, dict[str, int]] = defaultdict(dict)
    for pk, name, databases, is_ready in asked:
        if is_ready:
            found.add(pk)
        for alias in databases:
            elsewhere[alias][name] = pk
    for alias in awake(list(elsewhere)):
        if alias != home():
            found |= _with_ready_there(alias, elsewhere[alias])
    return found


def _with_ready_there(alias: str, queues: dict[str, int]) -> set[int]:
    """Return the same for queues, by name, that are also in another database."""
    try:
        bring_up(Task, using=alias)
        ready = Queue.objects.using(alias).filter(Exists(READY), name__in=queues)
        return {queues[name] for name in ready.values_list("name", flat=True)}
    except (DatabaseError, InterfaceError) as error:
        rest(alias, error)
        connections[alias].close()
        return set()


def until_some(
    attempt: Callable[[], list[Claimed]], queue: int, seconds: float, most: int
) -> tuple[list[Claimed], float]:
    """Call ``attempt`` until it returns something; return that, and the seconds of waiting before that call began.

    The list is empty if ``attempt`` returns nothing for ``seconds``.
    """
    found: list[Claimed] = []
    began = tried = time.monotonic()
    end, pause = began + seconds, SHORTEST_PAUSE
    with waiters.join(queue, most) as woken:
        while not found and (left := end - time.monotonic()) > 0:
            _give_connections_back()
            if woken.wait(left):
                woken.clear()
                tried = time.monotonic()
                found = attempt()
            if not found:
                time.sleep(max(0.0, min(pause, end - time.monotonic())))
                pause = min(LONGEST_PAUSE, 2 * pause)
    return found, tried - began


def _give_connections_back() -> None:
    for connection in connections.all(initialized_only=True):
        # Only a test that runs in a transaction has one open here.
        if not connection.in_atomic_block:
            connection.close()


def _told(sender: object, **kwargs: object) -> None:
    if sender is Task:
        waiters.wake()


waiters = Waiters()
became_ready.connect(_told, dispatch_uid="tasks.api.waiting")
