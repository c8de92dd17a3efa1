"""Requests that wait for tasks: they hold a thread and nothing else, no transaction and no connection.

One thread per process asks the database, while anybody waits, which of their queues has something ready, and wakes
those. What this process itself commits wakes them at once.
"""

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import DatabaseError, InterfaceError, connections
from django.db.models import Exists, OuterRef

from stator.claims import bring_up
from stator.signals import became_ready
from tasks.api.errors import Busy
from tasks.copies import awake, rest
from tasks.models import Queue, Task
from tasks.numbering import home

logger = logging.getLogger("tasks.api")

READY = Task.objects.filter(queue=OuterRef("pk"), state_ready=True, state_claim=None)

POLL_INTERVAL = 0.2
# After a failure to ask.
LONG_PAUSE = 1.0
# Between two tries of one request that is woken by what it may not claim: other metadata, a value that is taken.
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 0.4


class Waiters:
    """The requests of this process that wait."""

    def __init__(self) -> None:
        self._waiting: dict[threading.Event, int] = {}
        self._lock = threading.Lock()
        self._watched = False

    def __len__(self) -> int:
        return len(self._waiting)

    @contextmanager
    def join(self, queue: int, most: int) -> Iterator[threading.Event]:
        """An event that is set whenever it is worth trying again; ``Busy`` when ``most`` requests wait already."""
        woken = threading.Event()
        with self._lock:
            if len(self._waiting) >= most:
                raise Busy(f"as many claims wait as may in one process of the server ({most}); ask again", 1)
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
        """Wake those that wait for these queues, or all."""
        with self._lock:
            for woken, queue in self._waiting.items():
                if queues is None or queue in queues:
                    woken.set()

    def _watch(self) -> None:
        """Until nobody waits any more."""
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
    """Those of the queues in which a task is ready; index ``tasks_task_ready_in_queue``."""
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
    """As :func:`with_ready`, for queues by their names that are in another database too."""
    try:
        bring_up(Task, using=alias)
        ready = Queue.objects.using(alias).filter(Exists(READY), name__in=queues)
        return {queues[name] for name in ready.values_list("name", flat=True)}
    except (DatabaseError, InterfaceError) as error:
        rest(alias, error)
        connections[alias].close()
        return set()


def until_some(attempt: Callable[[], list[Any]], queue: int, seconds: float, most: int) -> tuple[list[Any], float]:
    """Return what ``attempt`` gives, as soon as it gives anything, and after how many seconds of waiting it began.

    An empty list if it gives nothing for so many seconds.
    """
    found: list[Any] = []
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
        # Within a transaction only in a test that is one as a whole.
        if not connection.in_atomic_block:
            connection.close()


def _told(sender: Any, **kwargs: Any) -> None:
    if sender is Task:
        waiters.wake()


waiters = Waiters()
became_ready.connect(_told, dispatch_uid="tasks.api.waiting")
