"""Claims that wait for tasks: HTTP requests, ``queue.claim(wait=...)`` and the loops of named workers.

While a claim waits, one thread per process polls the database for ready tasks in the awaited queues, and wakes the
claims that wait for them. A commit in this process wakes all waiting claims at once.
"""

import asyncio
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from asgiref.sync import sync_to_async
from django.apps import apps
from django.db import DatabaseError, InterfaceError, connections, transaction
from django.db.models import Exists, Model, OuterRef

from stator.claims import bring_up
from stator.graph.backoff import MAX_SECONDS
from stator.scopes import Scope
from stator.signals import became_ready
from tasks.exceptions import TaskError, TooManyWaiting
from tasks.queue import claiming
from tasks.queue.held_claims import TaskClaim
from tasks.rows.databases import scope_of
from tasks.rows.queues import QueueRow
from tasks.rows.tables import queue_rows, task_model, task_rows

if TYPE_CHECKING:
    from tasks.models import Queue

logger = logging.getLogger("tasks.queues")

POLL_INTERVAL = 0.2
# Seconds between polls after a failed one.
LONG_DELAY = 1.0
# Seconds between two tries of one claim. It may be woken by tasks that it may not claim: with other metadata, or with
# the exclusive value of a running task.
MIN_DELAY, MAX_DELAY = 0.05, 0.4
# Seconds after which a waiting claim checks whether it was stopped. A signal handler cannot wake it, because the thread
# that it interrupts may hold the lock of the event.
STOP_INTERVAL = 0.2

# What an attempt returns: claims, or nothing.
Some = list[Any]

# An awaited queue: the scope of its row, and its primary key.
Awaited = tuple[Scope, int]


class ClaimOptions(TypedDict, total=False):
    """The options of :meth:`tasks.models.Queue.claim`, but for the time that it waits."""

    worker: str
    limit: int
    lease: float | None
    metadata: Mapping[str, object] | None


class Waiters:
    """The waiting claims of this process: for each a function that wakes it."""

    def __init__(self) -> None:
        self._waiting: dict[Callable[[], None], Awaited] = {}
        self._lock = threading.Lock()
        self._watched = False

    def __len__(self) -> int:
        return len(self._waiting)

    @contextmanager
    def join(self, queue: Awaited, wake: Callable[[], None], most: int | None = None) -> Iterator[None]:
        """While the block runs, call ``wake`` when a new try may succeed; raise ``TooManyWaiting`` above ``most``."""
        with self._lock:
            if most is not None and len(self._waiting) >= most:
                raise TooManyWaiting(f"this process already has {most} waiting claims, its maximum; try again")
            self._waiting[wake] = queue
            start, self._watched = not self._watched, True
        if start:
            threading.Thread(target=self._watch, name="tasks-waiting", daemon=True).start()
        try:
            yield
        finally:
            with self._lock:
                del self._waiting[wake]

    def wake(self, queues: set[Awaited] | None = None) -> None:
        """Wake the claims that wait for these queues, or all."""
        with self._lock:
            for wake, queue in self._waiting.items():
                if queues is None or queue in queues:
                    wake()

    def _watch(self) -> None:
        """Poll until no claim waits."""
        while queues := self._waited_for():
            delay = POLL_INTERVAL
            for scope, pks in queues.items():
                with scope.enter():
                    try:
                        bring_up(task_model(), using=scope.alias)
                        self.wake({(scope, pk) for pk in with_ready(pks, scope.alias)})
                    except (DatabaseError, InterfaceError) as error:
                        logger.warning("tasks.watch_failed", extra={"error": type(error).__name__})
                        connections.close_all()
                        delay = LONG_DELAY
            time.sleep(delay)
        connections.close_all()

    def _waited_for(self) -> dict[Scope, set[int]]:
        queues: dict[Scope, set[int]] = defaultdict(set)
        with self._lock:
            self._watched = bool(self._waiting)
            for scope, pk in self._waiting.values():
                queues[scope].add(pk)
        return queues


def awaited(queue: QueueRow) -> Awaited:
    """Return a queue as this code finds it."""
    return scope_of(queue), queue.pk


def with_ready(queues: set[int], using: str) -> set[int]:
    """Return the queues among these that have a ready task; index ``tasks_task_ready_in_queue``."""
    ready = task_rows().filter(queue=OuterRef("pk"), state_ready=True, state_claim=None)
    asked = queue_rows(using).filter(pk__in=queues).values_list("pk", Exists(ready))
    return {pk for pk, is_ready in asked if is_ready}


def until_some(
    attempt: Callable[[], Some],
    queue: QueueRow,
    seconds: float,
    *,
    most: int | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> tuple[Some, float]:
    """Call ``attempt`` until it returns something; return that, and the seconds waited before that call.

    The list is empty if ``attempt`` returns nothing within ``seconds``, or once ``stopped`` returns True. ``most``: the
    most claims that may wait in this process.
    """
    claimed: Some = []
    woken = threading.Event()
    began = tried = time.monotonic()
    end, delay = began + seconds, MIN_DELAY
    with waiters.join(awaited(queue), woken.set, most):
        while not claimed and (left := end - time.monotonic()) > 0 and not stopped():
            if woken.wait(min(left, STOP_INTERVAL)):
                woken.clear()
                tried = time.monotonic()
                claimed = attempt()
                if not claimed:
                    time.sleep(max(0.0, min(delay, end - time.monotonic())))
                    delay = min(MAX_DELAY, 2 * delay)
    return claimed, tried - began


class AsyncWake:
    """An event of the running event loop that other threads and signal handlers may set."""

    def __init__(self) -> None:
        self._loop, self._event = asyncio.get_running_loop(), asyncio.Event()

    def set(self) -> None:
        """End the current wait, or the next one."""
        # The loop may be closed before a generator in it; then nothing waits any more.
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._event.set)

    async def wait(self, seconds: float) -> bool:
        """Wait for the event and clear it; return False if it was not set within ``seconds``."""
        try:
            await asyncio.wait_for(self._event.wait(), seconds)
        except TimeoutError:
            return False
        self._event.clear()
        return True


async def auntil_some(
    attempt: Callable[[], Awaitable[Some]],
    queue: QueueRow,
    seconds: float,
    *,
    most: int | None = None,
    woken: AsyncWake | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> tuple[Some, float]:
    """Wait like :func:`until_some` without blocking a thread. After ``woken.set()``, ``stopped`` is checked at once."""
    claimed: Some = []
    woken = woken or AsyncWake()
    began = tried = time.monotonic()
    end, delay = began + seconds, MIN_DELAY
    # Where attempts are made, since the connection of that thread knows the path.
    with waiters.join(await sync_to_async(awaited)(queue), woken.set, most):
        while not claimed and (left := end - time.monotonic()) > 0 and not stopped():
            if not await woken.wait(left) or stopped():
                continue
            tried = time.monotonic()
            claimed = await attempt()
            if not claimed:
                await asyncio.sleep(max(0.0, min(delay, end - time.monotonic())))
                delay = min(MAX_DELAY, 2 * delay)
    return claimed, tried - began


def claim(
    queue: "Queue",
    wait: float,
    *,
    worker: str,
    limit: int = 1,
    lease: float | None = None,
    metadata: Mapping[str, object] | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> list[TaskClaim]:
    """Claim tasks; if there are none, wait up to ``wait`` seconds for some, or until ``stopped`` returns True."""
    check_wait(queue, wait)
    take = partial(claiming.claim, queue, worker, limit, lease, metadata)
    return take() or (until_some(take, queue, wait, stopped=stopped)[0] if wait else [])


async def aclaim(queue: "Queue", *, wait: float = 0.0, **options: Unpack[ClaimOptions]) -> list[TaskClaim]:
    """Claim like :func:`claim`, without blocking a thread while it waits."""
    await sync_to_async(check_wait)(queue, wait)
    take = partial(sync_to_async(claim), queue, 0.0, **options)
    return await take() or ((await auntil_some(take, queue, wait))[0] if wait else [])


def check_wait(queue: QueueRow, wait: float) -> None:
    """Raise ``TaskError`` for a wait that is not a duration, or inside a transaction, which would keep its locks."""
    if isinstance(wait, bool) or not isinstance(wait, int | float) or not 0 <= wait <= MAX_SECONDS:
        raise TaskError(f"wait={wait!r} must be a number of seconds from 0 to {MAX_SECONDS:.0f}")
    if not wait:
        return
    try:
        with transaction.atomic(using=queue._state.db, durable=True):
            pass
    except RuntimeError:
        raise TaskError("waiting for tasks inside a transaction would keep its locks; wait outside of it") from None


def _on_ready(sender: object, **kwargs: object) -> None:
    waiters.wake()


def _connect(model: type[Model]) -> None:
    became_ready.connect(_on_ready, sender=model, dispatch_uid="tasks.waiting")


waiters = Waiters()
apps.lazy_model_operation(_connect, ("tasks", "task"))
