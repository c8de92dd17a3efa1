"""A worker process's attempt at a claimed task: run its action; end with a result, a retry or the final error."""

import asyncio
import itertools
import logging
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import ContextVar
from functools import cache, partial
from importlib import import_module
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from asgiref.sync import SyncToAsync, sync_to_async
from django.db import Error
from django.utils.module_loading import autodiscover_modules, import_string

from stator.claims import Claim
from stator.exceptions import AttemptTimedOut, Fail, LeaseLost, NotBegun, TryAgainLater, passable
from stator.graph.backoff import Backoff, delay_after
from stator.graph.failures import bounded, text_of
from stator.models import name_of
from stator.signals import on_heartbeat, on_start
from stator.worker.thread_pool import ThreadPool
from tasks.actions.registry import (
    Context,
    RegisteredAction,
    actions_on_loop,
    contained,
    django_on_loop,
    find,
    finders,
    runs_on_loop,
)
from tasks.actions.throttles import ActionSlot
from tasks.actions.values import storable
from tasks.conf import DJANGO, TaskSettings, load_settings
from tasks.failures import Cancel, NoHandler, OutOfAttempts, Release, Throttled, final
from tasks.graph import ATTEMPTING
from tasks.messages import Json
from tasks.queue import begun
from tasks.queue.begun import most_attempts
from tasks.queue.process_eligibility import choose, choose_actions, note_rules
from tasks.queue.runs import REASON_LENGTH
from tasks.rows.queues import QueueRow
from tasks.rows.tables import queue_rows, task_rows
from tasks.rows.tasks import TaskRow

logger = logging.getLogger("tasks.actions")

# Modules that are imported from every installed app to register actions.
MODULES = ("actions", "tasks")

LABEL = "tasks.task"

# The back-off for unknown actions: leaves a newer worker, which may have the action, time to start.
UNKNOWN = Backoff(base=120.0)

# Seconds that a queue's row is cached, and so until changes reach running workers; and the most cached queues.
QUEUE_CACHE = 5.0
MAX_QUEUES = 1000

# The framework abandons an attempt that ignores cancellation this many seconds after its timeout.
GRACE = 5.0

# Seconds until a task is tried again if all threads of the worker run actions that do not return.
STUCK = 10.0

_backoff: ContextVar[Any] = ContextVar("tasks_backoff")


class _Queue(NamedTuple):
    """A cached queue: its row and the settings, until when they hold, and an event while the row is being read."""

    until: float = 0.0
    row: QueueRow | None = None
    settings: Any = None
    loaded: asyncio.Event | None = None


NOT_CACHED = _Queue()

# Marks are written one at a time, each right before its call: if a call ends the process, at most one other attempt is
# marked and not begun.
_marking: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
_marking_in_thread = threading.Lock()

# Cached queues by worker (its operations), then by primary key.
_queues: WeakKeyDictionary[Any, dict[Any, _Queue]] = WeakKeyDictionary()


def connect() -> None:
    """Say how tasks are attempted, import the modules of all apps that declare actions, and connect the receivers."""
    ATTEMPTING.attempt, ATTEMPTING.backoff = attempt, _backoff_of_attempt
    finders[DJANGO] = _find_in_django
    autodiscover_modules(*MODULES)
    on_start.connect(_watch_threads, dispatch_uid="tasks.actions")
    on_start.connect(_choose_queues, dispatch_uid="tasks.queues")
    on_start.connect(_note_rules, dispatch_uid="tasks.rules")
    on_heartbeat.connect(_note_rules, dispatch_uid="tasks.rules")


def _find_in_django(path: str, queue: str, data: Json) -> RegisteredAction:
    # Imported by name, because a project may not have Django's Tasks framework; from then on it is asked directly.
    try:
        backend = import_module("tasks.backend.tasks_backend")
    except ImportError as error:
        raise NoHandler(f"no handler: Django's Tasks framework cannot be loaded: {error}") from error
    finders[DJANGO] = backend.action_of
    return finders[DJANGO](path, queue, data)


def _watch_threads(sender: Any, **kwargs: object) -> None:
    sender.health.watch("actions", _trouble)
    if hasattr(sender, "attempts"):
        sender.attempts.use_threads(LABEL, _threads(load_settings().THREADS), _needs_thread, _spare_threads)


def _needs_thread(claim: Claim) -> bool:
    return not runs_on_loop(claim.instance.action)


def _spare_threads(worker_id: str, spares: bool) -> bool:
    """Let claims of a worker take only tasks with asynchronous actions, or again all; return whether it does."""
    actions = (actions_on_loop() or None) if spares else None
    choose_actions(worker_id, actions)
    return actions is not None


def _note_rules(sender: Any, **kwargs: object) -> None:
    """Cache which rules any queue has, so that claims omit the other rules: at the start and with each heartbeat."""
    # The sender in the process of an attempt is no worker and claims nothing.
    if not hasattr(sender, "id"):
        return
    # Scopes with paths have queues of their own: all rules are in force.
    if sender.has_paths:
        return
    # The heartbeat itself reports that a database cannot be reached.
    with suppress(Error):
        note_rules(sender.id, {operations.alias for operations in sender.operations if operations.label == LABEL})


def _choose_queues(sender: Any, **kwargs: object) -> None:
    """Restrict a worker to what its options about queues and metadata say, before its first claim."""
    queues, metadata = getattr(sender, "queues", ()), getattr(sender, "metadata", {})
    excluded = getattr(sender, "excluded_queues", ())
    if not (queues or metadata or excluded):
        return
    choose(sender.id, queues, metadata, excluded)
    known = set(queue_rows().filter(name__in=queues).values_list("name", flat=True))
    for name in sorted(set(queues) - known):
        logger.warning("tasks.queue_missing", extra={"queue": name, "remedy": "it is served once it is created"})


def _trouble(patience: float) -> str:
    if _threads(load_settings().THREADS).are_exhausted_for(patience):
        return "every thread for synchronous actions runs an action that does not return"
    return ""


def _backoff_of_attempt(failures: int) -> float:
    """Return the delay in seconds after the attempt that has just failed; called in the context of that attempt."""
    return delay_after(_backoff.get(UNKNOWN), failures, 1.0)


async def attempt(task: Any) -> str:
    """Run the action of a claimed task and return the state that it moves to; raise an error or a wait."""
    claim = task.stator
    # The project's code is called later; until then the attempt has not begun.
    claim.started = 0.0
    queue, settings = await _queue_of(task)
    # Like assigning ``task.queue``, but without a call of the database routers.
    type(task).queue.field.set_cached_value(task, queue)
    most = most_attempts(task.max_attempts, queue.max_attempts, None, settings)
    known: RegisteredAction | None = None
    try:
        if task.elsewhere_only:
            raise NoHandler("no handler: it was published over HTTP, for external programs only")
        known = found = find(task.action, queue.name, task.data)
        most = most_attempts(task.max_attempts, queue.max_attempts, found, settings)
        if claim.attempt > most:
            raise OutOfAttempts(f"it has used its {most} attempts")
        if found.runs_on_loop and task.action.startswith(DJANGO):
            django_on_loop.add(task.action)
        seconds = task.timeout or found.timeout or queue.timeout or settings.TIMEOUT
        is_marked = begun.is_marked(claim.attempt, most, task.state_crashes)
        beginning = Beginning(claim, seconds, is_marked=is_marked)
        await beginning.limited(_carry_out(found, task, settings, beginning))
    except Cancel as end:
        _note_end(claim, end)
        return "canceled"
    except TryAgainLater as later:
        if isinstance(later, Release):
            _note_end(claim, later)
            later.after = delay_after(known.backoff if known else UNKNOWN, claim.attempt, 1.0)
        if claim.attempt < most:
            raise
        error: BaseException = OutOfAttempts(
            f"it has used its {most} attempts; the last reason: {later.reason or 'later'}"
        )
    except (LeaseLost, NotBegun):
        raise
    except asyncio.CancelledError as raised:
        if _is_cancelled():
            raise
        # The action itself raised it, or something that it awaits was cancelled.
        error = passable(raised)
    except BaseException as raised:  # noqa: BLE001 - whatever an action raises is the end of this attempt alone
        error = raised
    else:
        return "completed"
    if isinstance(error, Fail) or claim.attempt >= most:
        raise final(error)
    if (backoff := await _backoff_after(error, known, task)) is None:
        raise final(error)
    # The context changes only on failure, because an attempt with a changed context needs an asyncio task of its own.
    _backoff.set(backoff)
    raise error


async def _backoff_after(error: BaseException, found: RegisteredAction | None, task: Any) -> Any:
    """Return the back-off after an error of an attempt; None if the error is final."""
    if found is None:
        return UNKNOWN
    if found.errors_are_final:
        return None
    try:
        return await found.backoff_after(error, task)
    except Exception as broken:
        raise broken from error


def _note_end(claim: Claim, end: Release | Cancel) -> None:
    """Have the attempt recorded as one whose action gave its task up."""
    reason = bounded(text_of(end.reason), REASON_LENGTH)
    claim.notes = {**claim.notes, "outcome": end.outcome, "reason": reason}


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class Beginning:
    """The beginning of an attempt's action; its timeout of ``seconds`` counts from there.

    ``is_marked``: whether the database gets to know of it first.
    """

    def __init__(self, claim: Claim, seconds: float | None, *, is_marked: bool) -> None:
        self.claim = claim
        self.is_marked = is_marked
        self._seconds = seconds
        self._is_over = False

    async def limited(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work, but no longer than the timeout once the action has begun, heartbeats or not."""
        if self._seconds is None:
            return await work
        too_long = AttemptTimedOut(f"the attempt ran longer than its timeout of {self._seconds:g} s and was ended")
        self._loop, self._limit = asyncio.get_running_loop(), asyncio.timeout(None)
        try:
            async with self._limit:
                await work
        except TimeoutError:
            if self._limit.expired():
                raise too_long from None
            raise
        finally:
            self._is_over = True
        # Work that blocked the event loop could not be cancelled in time.
        if time.monotonic() > self.claim.started + self._seconds:
            raise too_long
        return None

    async def mark_on_loop(self) -> None:
        """Mark the attempt and note that its action is called now, on the event loop; raise as :meth:`begin`."""
        async with _marking.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            await sync_to_async(self.write_mark)()
            self.begin()

    def begin_in_thread(self) -> None:
        """Note that the action is called now, in this thread; raise ``NotBegun`` as :meth:`begin`."""
        if self.has_mark_to_write:
            with _marking_in_thread:
                self.write_mark()
                self.begin()
        else:
            self.begin()

    @property
    def has_mark_to_write(self) -> bool:
        return self.is_marked and not self.claim.started and self.claim.may_begin

    def write_mark(self) -> None:
        with self.claim.preparing():
            begun.mark(self.claim.instance, self.claim.token)

    def begin(self) -> None:
        """Note, in any thread, that the action is called now; raise ``NotBegun`` if it must not be called any more."""
        claim = self.claim
        if not claim.may_begin:
            raise NotBegun(0.0, "")
        if claim.started:
            return
        claim.started = time.monotonic()
        if self._seconds is not None:
            # If the work ignores cancellation, the framework abandons it at this time.
            claim.max_runtime = self._seconds + GRACE
            self._loop.call_soon_threadsafe(self._set_limit, claim.started + self._seconds)

    def _set_limit(self, when: float) -> None:
        # The action may have ended already.
        if not self._is_over:
            self._limit.reschedule(when)


async def _carry_out(found: RegisteredAction, task: TaskRow, settings: TaskSettings, beginning: Beginning) -> None:
    """Run the action and store its result on the task."""
    context = Context(task, task.stator, name_of(task.stator.operations.worker_id))
    limited = found.throttled
    try:
        if limited or found.is_heard:
            with context.claim.preparing():
                if limited:
                    await sync_to_async(_admit)(found, context)
                if not context.claim.may_begin:
                    raise NotBegun(0.0, "")
                await found.begin(context)
        value = await _retried(found, context, settings, beginning)
    finally:
        context.end()
        if found.concurrency:
            await sync_to_async(_leave)(found, context)
    task.result = None if value is None else storable(found.result_of(value), settings)


async def _retried(found: RegisteredAction, context: Context, settings: TaskSettings, beginning: Beginning) -> Any:
    """Return the value of the action, after up to ``local_retries`` further calls within this attempt.

    The task's ``max_unexpected_retries`` overrides that number. It is read from the database after each error.
    """
    own = context.task.max_unexpected_retries
    most = found.local_retries if own is None else own
    failed: Exception | None = None
    for tried in itertools.count():
        try:
            return await _call(found, context, settings, beginning)
        except (Fail, LeaseLost):
            raise
        except NotBegun:
            if failed is None:
                raise
            # An earlier call of the action failed, so this counts as an attempt.
            raise failed  # noqa: B904 - the error of that call
        except Exception as error:
            failed = error
            if most:
                most = await sync_to_async(_most_retries)(found, context)
                context.claim.notes = {**context.claim.notes, "unexpected_errors": tried + 1}
            if tried >= most:
                raise
            logger.warning(
                "tasks.local_retry",
                extra={
                    "action": found.name,
                    "task": context.task.pk,
                    "error": type(error).__name__,
                    "left": most - tried,
                },
            )
            await asyncio.sleep(found.local_delay)
            context.claim.begin_again()
    raise AssertionError("the last try returns or raises")


def _most_retries(found: RegisteredAction, context: Context) -> int:
    """Return how many errors this worker retries, as the database has it now; 0 if the claim has ended."""
    if not context.still_mine():
        return 0
    task = context.task
    rows = task_rows(task._state.db).filter(pk=task.pk)
    own: int | None = rows.values_list("max_unexpected_retries", flat=True).first()
    return found.local_retries if own is None else own


async def _call(found: RegisteredAction, context: Context, settings: TaskSettings, beginning: Beginning) -> Any:
    if found.called_by:
        return await import_string(found.called_by)(context, settings, beginning)
    if found.is_async:
        if beginning.has_mark_to_write:
            await beginning.mark_on_loop()
        beginning.begin()
        return await found.acall(context)
    return await in_thread(partial(found.call, context), settings, beginning)


async def in_thread(function: Callable[[], Any], settings: TaskSettings, beginning: Beginning) -> Any:
    """Call a synchronous function in a thread of the worker and return its result.

    In a test or a single cycle it runs in the caller's thread instead, within the transaction that may be open there.
    """
    call = partial(_begin_and_call, beginning, function)
    if SyncToAsync.thread_sensitive_context.get(None) is None:
        return await sync_to_async(contained)(call)
    threads = _threads(settings.THREADS)
    if threads.exhausted:
        logger.critical("tasks.threads_stuck", extra={"threads": threads.count})
        raise Throttled(STUCK, "every thread of this worker runs an action that does not return")
    return await threads.run(call, must_begin=bool(beginning.claim.started))


def _begin_and_call(beginning: Beginning, function: Callable[[], Any]) -> Any:
    beginning.begin_in_thread()
    try:
        return function()
    finally:
        # The loop learns of the return later. How much is claimed ahead depends on how long the call takes its thread.
        beginning.claim.returned = time.monotonic()


@cache
def _threads(count: int) -> ThreadPool:
    return ThreadPool(count, "tasks-action")


async def _queue_of(task: TaskRow) -> tuple[Any, TaskSettings]:
    """Return the task's queue and the settings, at most ``QUEUE_CACHE`` seconds old.

    Attempts that start together share one query.
    """
    key, claim = task.queue_id, task.stator
    cached = _queues.setdefault(claim.operations, {})
    while (queue := cached.get(key, NOT_CACHED)).until < time.monotonic():
        if queue.loaded is None:
            with claim.preparing():
                queue = await _load_queue(task, cached)
        else:
            await queue.loaded.wait()
    return queue.row, queue.settings


async def _load_queue(task: TaskRow, cached: dict[Any, _Queue]) -> _Queue:
    if len(cached) >= MAX_QUEUES:
        cached.clear()
    loaded = asyncio.Event()
    cached[task.queue_id] = loading = _Queue(loaded=loaded)
    try:
        settings, row = load_settings(), await sync_to_async(_read_queue)(task)
        cached[task.queue_id] = queue = _Queue(time.monotonic() + QUEUE_CACHE, row, settings)
    finally:
        # If the query failed, the next attempt sends it again.
        if cached.get(task.queue_id) is loading:
            del cached[task.queue_id]
        loaded.set()
    return queue


def _read_queue(task: TaskRow) -> Any:
    # Packages that look for repeated queries would take ``task.queue`` of several tasks for one of them.
    return queue_rows(str(task._state.db)).filter(pk=task.queue_id).first() or task.queue


def _admit(found: RegisteredAction, context: Context) -> None:
    """Take a concurrency slot and a start of the rate; raise ``Throttled`` if either is used up."""
    wait, reason = ActionSlot.admit(found, context.task, context.claim.token)
    if wait:
        raise Throttled(wait, reason)


def _leave(found: RegisteredAction, context: Context) -> None:
    """Release the concurrency slot; if that fails, it is free once the claim has ended."""
    task = context.task
    try:
        ActionSlot.leave(task._state.db, found.throttle_key(task), task.pk, context.claim.token)
    except Error as error:
        logger.warning("tasks.slot_kept", extra={"action": found.name, "task": task.pk, "error": type(error).__name__})
