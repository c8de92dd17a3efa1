"""A worker process's attempt at a claimed task: run its action; end with a result, a retry or the final error."""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from contextvars import ContextVar
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast
from weakref import WeakKeyDictionary

from asgiref.sync import SyncToAsync, sync_to_async
from django.db import Error
from django.utils.module_loading import autodiscover_modules, import_string

from stator.claims import Claim, Operations
from stator.exceptions import PROJECT_ERRORS, AttemptTimedOut, Fail, LeaseLost, NotBegun, TryAgainLater, passable
from stator.graph.backoff import Backoff, delay_after
from stator.graph.failures import bounded, text_of
from stator.models import name_of
from stator.signals import on_heartbeat, on_start
from stator.statements import JsonText
from stator.worker.thread_pool import ThreadPool
from tasks.actions.registry import (
    Context,
    Delay,
    RegisteredAction,
    actions_on_loop,
    contained,
    django_on_loop,
    find,
    runs_on_loop,
    variant_of,
)
from tasks.actions.values import storable
from tasks.conf import DJANGO, TaskSettings, load_settings
from tasks.failures import Cancel, NoHandler, OutOfAttempts, Release, final
from tasks.graph import ATTEMPTING
from tasks.queue import begun
from tasks.queue.begun import usual_attempts
from tasks.queue.process_eligibility import choose, choose_actions, note_rules
from tasks.queue.runs import REASON_LENGTH
from tasks.rows.queues import QueueRow
from tasks.rows.tables import queue_rows, task_rows

if TYPE_CHECKING:
    from tasks.models import Task

Result = TypeVar("Result")

logger = logging.getLogger("tasks.actions")

# Modules that are imported from every installed app to register actions.
MODULES = ("actions", "tasks")

LABEL = "tasks.task"

# The key, among the values of a task, of an attempt that has failed in its thread.
FAILED = "tasks_failed_attempt"

# The back-off for unknown actions: leaves a newer worker, which may have the action, time to start.
UNKNOWN = Backoff(base=120.0)

# Seconds that a queue's row is cached, and so until changes reach running workers; and the most cached queues.
QUEUE_CACHE = 5.0
MAX_QUEUES = 1000

# The framework abandons an attempt that ignores cancellation this many seconds after its timeout.
GRACE = 5.0

# Seconds until a task is tried again if all threads of the worker run actions that do not return.
STUCK = 10.0

_backoff: ContextVar[Delay] = ContextVar("tasks_backoff")


class Terms(NamedTuple):
    """How the tasks of one action in one queue are attempted: all that does not depend on the single task.

    ``action``, None if this worker has none of that name. ``most``: attempts, for tasks without an own
    number. ``timeout``: seconds, for tasks without an own one.
    """

    # Any, because whoever makes an attempt knows that there is one.
    action: Any
    settings: TaskSettings
    worker: str
    most: int
    timeout: float | None

    @property
    def backoff(self) -> Delay:
        """The back-off after an attempt that its action gave up."""
        return self.action.backoff if self.action else UNKNOWN


class _Queue:
    """A cached queue: its row and the terms of its actions, until when they hold, and an event while it is read."""

    __slots__ = ("_terms", "loaded", "row", "until", "without_action")

    without_action: Terms

    def __init__(self, loaded: asyncio.Event | None = None) -> None:
        self.until = 0.0
        self.row: QueueRow
        self.loaded = loaded
        self._terms: dict[Hashable, Terms] = {}

    @classmethod
    def read(cls, row: QueueRow, settings: TaskSettings, worker: str) -> "_Queue":
        """Return a queue that was read just now."""
        queue = cls()
        queue.until, queue.row = time.monotonic() + QUEUE_CACHE, row
        most = usual_attempts(row.max_attempts, None, settings)
        queue.without_action = Terms(None, settings, worker, most, row.timeout or settings.TIMEOUT)
        return queue

    def terms_of(self, task: "Task") -> Terms:
        """Return the terms for a task; raise ``NoHandler`` if this worker has no action for it."""
        if task.elsewhere_only:
            raise NoHandler("no handler: it was published over HTTP, for external programs only")
        terms = self._terms[_key_of(task)] = self._terms_for(task)
        return terms

    def known_terms(self, task: "Task") -> Terms | None:
        """Return the terms for a task if its action was found before."""
        return None if task.elsewhere_only else self._terms.get(_key_of(task))

    def _terms_for(self, task: "Task") -> Terms:
        action, usual = find(task.action, self.row.name, task.data), self.without_action
        if action.runs_on_loop and task.action.startswith(DJANGO):
            django_on_loop.add(task.action)
        most = usual_attempts(self.row.max_attempts, action, usual.settings)
        return usual._replace(action=action, most=most, timeout=action.timeout or usual.timeout)


def _key_of(task: "Task") -> Hashable:
    name = task.action
    return (name, variant_of(task.data)) if name.startswith(DJANGO) else name


NOT_CACHED = _Queue()

# Marks are written one at a time, each right before its call: if a call ends the process, at most one other attempt is
# marked and not begun.
_marking: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()
_marking_in_thread = threading.Lock()

# Cached queues by worker (its operations), then by primary key.
_queues: WeakKeyDictionary[Operations, dict[object, _Queue]] = WeakKeyDictionary()


def connect() -> None:
    """Say how tasks are attempted, import the modules of all apps that declare actions, and connect the receivers."""
    ATTEMPTING.attempt, ATTEMPTING.backoff = attempt, _backoff_of_attempt
    autodiscover_modules(*MODULES)
    on_start.connect(_watch_threads, dispatch_uid="tasks.actions")
    on_start.connect(_choose_queues, dispatch_uid="tasks.queues")
    on_start.connect(_note_rules, dispatch_uid="tasks.rules")
    on_heartbeat.connect(_note_rules, dispatch_uid="tasks.rules")


def _watch_threads(sender: Any, **kwargs: object) -> None:
    sender.health.watch("actions", _trouble)
    if hasattr(sender, "attempts"):
        sender.attempts.use_threads(
            LABEL, _threads(load_settings().THREADS), _needs_thread, _spare_threads, _attempt_in_thread
        )


def _needs_thread(claim: Claim) -> bool:
    return not runs_on_loop(claim.instance.action)


def _attempt_in_thread(claim: Claim) -> "TaskAttempt | None":
    """Return the attempt of a claimed task if it needs nothing but the call of an action in a thread."""
    task = claim.instance
    queue = _queues.get(claim.operations, {}).get(vars(task)["queue_id"], NOT_CACHED)
    if queue.until < time.monotonic() or _is_single_cycle():
        return None
    try:
        terms = queue.known_terms(task)
    except PROJECT_ERRORS:  # of data that cannot be read: on the loop it is the error of this attempt
        return None
    if terms is None:
        return None
    action = terms.action
    if action.runs_on_loop or action.called_by or action.is_heard or task.timeout or terms.timeout:
        return None
    if _threads(terms.settings.THREADS).exhausted or claim.attempt > (task.max_attempts or terms.most):
        return None
    task._state.fields_cache = {"queue": queue.row}
    attempt = TaskAttempt(task, terms)
    return None if attempt.is_marked or attempt.is_limited else attempt


def _is_single_cycle() -> bool:
    """Return whether synchronous code has to run in the caller's thread, within its transaction."""
    return SyncToAsync.thread_sensitive_context.get(None) is None


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


async def attempt(task: "Task") -> str:
    """Run the action of a claimed task and return the state that it moves to; raise an error or a wait."""
    claim = _claim_of(task)
    failed: TaskAttempt | None = vars(task).pop(FAILED, None)
    if failed is None:
        # The project's code is called later; until then the attempt has not begun.
        claim.started = 0.0
    queue = await _queue_of(task)
    # Assigning ``task.queue`` would call the routers of the databases. Nothing else is cached for a claimed task.
    task._state.fields_cache = {"queue": queue.row}
    terms = queue.without_action
    try:
        terms = queue.known_terms(task) or queue.terms_of(task)
        if claim.attempt > (task.max_attempts or terms.most):
            raise OutOfAttempts(f"it has used its {task.max_attempts or terms.most} attempts")
        await (failed or TaskAttempt(task, terms)).run()
    except Cancel as end:
        _note_end(claim, end)
        return "canceled"
    except TryAgainLater as later:
        if isinstance(later, Release):
            _note_end(claim, later)
            later.after = delay_after(terms.backoff, claim.attempt, 1.0)
        most = task.max_attempts or terms.most
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
    if isinstance(error, Fail) or claim.attempt >= (task.max_attempts or terms.most):
        raise final(error)
    if (backoff := await _backoff_after(error, terms.action, task)) is None:
        raise final(error)
    # The context changes only on failure, because an attempt with a changed context needs an asyncio task of its own.
    _backoff.set(backoff)
    raise error


async def _backoff_after(error: BaseException, action: RegisteredAction | None, task: "Task") -> Delay | None:
    """Return the back-off after an error of an attempt; None if the error is final."""
    if action is None:
        return UNKNOWN
    if action.errors_are_final:
        return None
    try:
        return await action.backoff_after(error, task)
    except Exception as broken:
        raise broken from error


def _note_end(claim: Claim, end: Release | Cancel) -> None:
    """Have the attempt recorded as one whose action gave its task up."""
    reason = bounded(text_of(end.reason), REASON_LENGTH)
    claim.notes = {**claim.notes, "outcome": end.outcome, "reason": reason}


def _claim_of(task: "Task") -> Claim:
    """Return what handlers know as a ``HeldClaim``."""
    return cast("Claim", task.stator)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class TaskAttempt:
    """One call of an action for a task, with the further calls of local retries.

    ``seconds``: its timeout, which counts from the first call. ``is_marked``: the database gets to know of the call
    first. ``is_limited``: what has to admit it, "" if nothing has.
    """

    __slots__ = (
        "_ended", "_is_over", "_limit", "_loop", "action", "claim", "context", "is_limited", "is_marked", "seconds",
        "settings", "task",
    )  # fmt: skip

    claim: Claim
    action: RegisteredAction

    def __init__(self, task: "Task", terms: Terms) -> None:
        claim = _claim_of(task)
        self.task, self.claim, self.action, self.settings = task, claim, terms.action, terms.settings
        self.context = Context(task, claim, terms.worker)
        self.seconds = task.timeout or terms.timeout
        self.is_marked = begun.is_marked(claim.attempt, task.max_attempts or terms.most, task.state_crashes)
        self.is_limited = terms.action.admitted_by
        self._is_over = False
        # The value and the error of a first call that a thread has made.
        self._ended: tuple[Any, BaseException | None] | None = None

    async def run(self) -> None:
        """Call the action, no longer than its timeout, and store its result on the task."""
        action, context = self.action, self.context
        try:
            if (self.is_limited or action.is_heard) and self._ended is None:
                await self._prepare()
            value = await (self._called() if self.seconds is None else self._called_in_time(self.seconds))
        finally:
            context.end()
            if action.leaves:
                await sync_to_async(_leave)(action, context)
        self._store(value)

    def run_in_thread(self) -> str:
        """Make the attempt in this thread; if something fails, :meth:`run` goes on with what the call came to."""
        value = None
        try:
            value = self._begin_and_call(partial(self.action.call, self.context))
            self._store(value)
        except NotBegun:
            self.context.end()
            raise
        except BaseException as raised:
            error = None if value is not None else passable(raised)
            self._ended, vars(self.task)[FAILED] = (value, error), self
            raise
        self.context.end()
        return "completed"

    def give_up(self) -> None:
        """Note that nobody waits for the call any more."""
        self.context.end()

    def _store(self, value: Any) -> None:
        if value is not None:
            self.task.result = JsonText(storable(self.action.result_of(value), self.settings))
        elif "result" in vars(self.task):
            # The action has read it, or written it itself, which is no result.
            self.task.result = None

    async def _prepare(self) -> None:
        """Do what comes before the call: ask whether it is admitted, and tell those who listen."""
        with self.claim.preparing():
            if self.is_limited:
                await sync_to_async(_admit)(self.action, self.context)
            if not self.claim.may_begin:
                raise NotBegun(0.0, "")
            await self.action.begin(self.context)

    async def _called_in_time(self, seconds: float) -> object:
        """Return the value of the action; end it when the timeout is over, heartbeats or not."""
        too_long = AttemptTimedOut(f"the attempt ran longer than its timeout of {seconds:g} s and was ended")
        self._loop, self._limit = asyncio.get_running_loop(), asyncio.timeout(None)
        try:
            async with self._limit:
                value = await self._called()
        except TimeoutError:
            if self._limit.expired():
                raise too_long from None
            raise
        finally:
            self._is_over = True
        # An action that blocked the event loop could not be cancelled in time.
        if time.monotonic() > self.claim.started + seconds:
            raise too_long
        return value

    async def _called(self) -> object:
        """Return the value of the action, after further calls within this attempt if it allows them.

        The task's ``max_unexpected_retries`` overrides their number. It is read from the database after each error.
        """
        failed: Exception | None = None
        tried = 0
        while True:
            try:
                return await self._call()
            except (Fail, LeaseLost):
                raise
            except NotBegun:
                # If an earlier call of the action failed, this counts as an attempt.
                if failed is None:
                    raise
                raise failed  # noqa: B904 - the error of that call
            except Exception as error:
                own = self.task.max_unexpected_retries
                if failed is None and not (self.action.local_retries if own is None else own):
                    raise
                failed = error
            tried += 1
            most = await sync_to_async(self._most_retries)()
            self.claim.notes = {**self.claim.notes, "unexpected_errors": tried}
            if tried > most:
                raise failed
            await self._rest(failed, most - tried + 1)

    def _most_retries(self) -> int:
        """Return how many errors this worker retries, as the database has it now; 0 if the claim has ended."""
        if not self.context.still_mine():
            return 0
        rows = task_rows(self.task._state.db).filter(pk=self.task.pk)
        own: int | None = rows.values_list("max_unexpected_retries", flat=True).first()
        return self.action.local_retries if own is None else own

    async def _rest(self, error: Exception, left: int) -> None:
        action, self.claim.finished = self.action, 0.0
        fields = {"action": action.name, "task": self.task.pk, "error": type(error).__name__, "left": left}
        logger.warning("tasks.local_retry", extra=fields)
        await asyncio.sleep(action.local_delay)
        self.claim.begin_again()

    def _call(self) -> Awaitable[object]:
        """Call the action, and return what to await for its value."""
        if self._ended is not None:
            ended, self._ended = self._ended, None
            return _first_call(*ended)
        action = self.action
        if not action.runs_on_loop:
            if action.called_by:
                return import_string(action.called_by)(self)
            return self.in_thread(partial(action.call, self.context))
        if self.is_marked and self.has_mark_to_write:
            return self._marked_call()
        self._begin()
        return action.acall(self.context)

    async def _marked_call(self) -> object:
        async with _marking.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            await sync_to_async(self._write_mark)()
            self._begin()
        return await self.action.acall(self.context)

    def in_thread(self, function: Callable[[], Result]) -> Awaitable[Result]:
        """Call a synchronous function in a thread of the worker, and return what to await for its result.

        In a test or a single cycle it runs in the caller's thread instead, within the transaction that may be open
        there.
        """
        call = partial(self._begin_and_call, function)
        if _is_single_cycle():
            return sync_to_async(contained)(call)
        threads = _threads(self.settings.THREADS)
        if threads.exhausted:
            logger.critical("tasks.threads_stuck", extra={"threads": threads.count})
            raise NotBegun(STUCK, "every thread of this worker runs an action that does not return")
        return threads.run(call, must_begin=bool(self.claim.started))

    def _begin_and_call(self, function: Callable[[], Result]) -> Result:
        if self.is_marked and self.has_mark_to_write:
            with _marking_in_thread:
                self._write_mark()
                self._begin()
        else:
            self._begin()
        try:
            return function()
        finally:
            # The loop learns of the return later. How much is claimed ahead depends on how long the call takes its
            # thread.
            self.claim.finished = time.monotonic()

    @property
    def has_mark_to_write(self) -> bool:
        """Whether the call has to be marked before it is made."""
        return self.is_marked and not self.claim.started and self.claim.may_begin

    def _write_mark(self) -> None:
        with self.claim.preparing():
            begun.mark(self.task, self.claim.token)

    def _begin(self) -> None:
        """Note, in any thread, that the action is called now; raise ``NotBegun`` if it must not be called any more."""
        claim = self.claim
        if not claim.may_begin:
            raise NotBegun(0.0, "")
        if claim.started:
            return
        claim.started = time.monotonic()
        if self.seconds is not None:
            # If the action ignores cancellation, the framework abandons it at this time.
            claim.max_runtime = self.seconds + GRACE
            self._loop.call_soon_threadsafe(self._set_limit, claim.started + self.seconds)

    def _set_limit(self, when: float) -> None:
        # The action may have ended already.
        if not self._is_over:
            self._limit.reschedule(when)


async def _first_call(value: object, error: BaseException | None) -> object:
    if error is not None:
        raise error
    return value


@cache
def _threads(count: int) -> ThreadPool:
    return ThreadPool(count, "tasks-action")


async def _queue_of(task: "Task") -> _Queue:
    """Return what this worker knows of the task's queue, at most ``QUEUE_CACHE`` seconds old.

    Attempts that start together share one query.
    """
    # Read from the instance's values, because the attribute of a foreign key costs a call.
    key, claim = vars(task)["queue_id"], _claim_of(task)
    cached = _queues.setdefault(claim.operations, {})
    while (queue := cached.get(key, NOT_CACHED)).until < time.monotonic():
        if queue.loaded is None:
            with claim.preparing():
                queue = await _load_queue(task, cached)
        else:
            await queue.loaded.wait()
    return queue


async def _load_queue(task: "Task", cached: dict[object, _Queue]) -> _Queue:
    if len(cached) >= MAX_QUEUES:
        cached.clear()
    loaded = asyncio.Event()
    cached[task.queue_id] = loading = _Queue(loaded=loaded)
    try:
        settings, row = load_settings(), await sync_to_async(_read_queue)(task)
        worker = name_of(_claim_of(task).operations.worker_id)
        cached[task.queue_id] = queue = _Queue.read(row, settings, worker)
    finally:
        # If the query failed, the next attempt sends it again.
        if cached.get(task.queue_id) is loading:
            del cached[task.queue_id]
        loaded.set()
    return queue


def _read_queue(task: "Task") -> QueueRow:
    # Packages that look for repeated queries would take ``task.queue`` of several tasks for one of them.
    return queue_rows(str(task._state.db)).filter(pk=task.queue_id).first() or task.queue


def _admit(action: RegisteredAction, context: Context) -> None:
    """Raise ``NotBegun`` if the attempt is not admitted now."""
    wait, reason = import_string(action.admitted_by).admit(action, context.task, context.claim.token)
    if wait:
        raise NotBegun(wait, reason)


def _leave(action: RegisteredAction, context: Context) -> None:
    import_string(action.admitted_by).leave(action, context.task, context.claim.token)
