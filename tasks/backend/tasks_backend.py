"""A backend for Django's Tasks framework: ``django.tasks`` from Django 6.0 on, the package ``django-tasks`` before.

A function of that framework is an action whose name is ``django:`` and its path. Enqueueing it inserts one row.
"""

import logging
import os
import re
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib import import_module
from typing import NamedTuple

from asgiref.sync import sync_to_async
from django.apps import apps
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model

from stator.asynchronous import in_thread
from stator.graph.failures import Failure
from stator.signals import Move, transitioned
from stator.texts import Json, JsonObject
from tasks.actions.registry import Context, Delay, RegisteredAction, contained, variant_of
from tasks.backend.declared_tasks import BackoffFunction, StatorTask, delay_of, problem_of
from tasks.backend.enqueueing import enqueue
from tasks.backend.framework import (
    BaseTaskBackend,
    Task,
    TaskContext,
    TaskResult,
    is_heard,
    is_received,
    no_result,
    normalize_json,
    send,
    send_finished,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from tasks.backend.history import add_history, read_with_history
from tasks.backend.options import BackendOptions, problem, shared_options
from tasks.backend.results import NONCE, STATUSES, failed, has_past, new_result, number_of, results_of
from tasks.conf import DJANGO, load_settings
from tasks.datetimes import moment_problem
from tasks.exceptions import PublishRefused, TaskError
from tasks.extensions.backend.priorities import priority_of
from tasks.failures import NoHandler
from tasks.messages import json_text
from tasks.queue.publishing import bound_tasks
from tasks.queue.rules import queue_name_problem
from tasks.rows.databases import home
from tasks.rows.tables import task_rows
from tasks.rows.tasks import TaskRow

ACTION_LENGTH = 200
RESULT_ID = re.compile(r"([1-9]\d{0,17})(?:-([0-9a-f]{16}))?")

# A module, a dot, and the name of a function in it.
PATH = re.compile(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*)\.([^\W\d]\w*)")

# The most modules that the system check remembers.
MAX_DECLARED = 10_000

REMEDY = 'Add its app to INSTALLED_APPS, or list the module: TASKS[{!r}]["OPTIONS"]["modules"] = [{!r}].'

# Types of values that the framework leaves as they are.
PLAIN = {str, int, float, bool}

# The most tasks that a backend remembers as checked.
MAX_KNOWN = 1000

# The positional and keyword arguments of one call.
Call = tuple[list[Json], JsonObject]


class Known(NamedTuple):
    """A task that was checked, and what all its calls have in common."""

    task: Task
    options: Mapping[str, object]


logger = logging.getLogger("tasks.backend")


class StatorBackend(BaseTaskBackend):
    """A backend that enqueues tasks as rows of :class:`tasks.models.Task`; ``runstator`` workers run them.

    ``enqueue`` joins the open transaction: if it is rolled back, the task does not exist and never runs.
    """

    task_class = StatorTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, object]) -> None:
        super().__init__(alias, params)
        # A problem is not raised here, because tasks are declared while Django still loads the apps. A system check
        # reports it.
        self._problem = problem(self.options, self.queues)
        self._known: dict[int, Known] = {}
        self._resolved: set[str] = set()

    def validate_task(self, task: Task) -> None:
        """Validate as the framework does, and the options of the proposal; note the module for the system check."""
        super().validate_task(task)
        if wrong := problem_of(task):
            raise ValueError(f"@task {task.module_path}: {wrong}")
        if len(_declared) < MAX_DECLARED:
            _declared.add((self.alias, task.func.__module__))

    def enqueue(self, task: Task, args: list[object], kwargs: dict[str, object]) -> TaskResult:
        """Insert a task and return its result; ``TypeError`` or ``PublishRefused`` if the arguments are not JSON."""
        return self._enqueue(task, [(args, kwargs)])[0]

    def enqueue_many(
        self, task: Task, calls: Iterable[tuple[Sequence[object], Mapping[str, object]]]
    ) -> list[TaskResult]:
        """Enqueue the task once for each pair of positional and keyword arguments: all of them, or none.

        The results are in order. As with :meth:`enqueue`, each call is checked and ``task_enqueued`` is sent for it.
        """
        given = [_call(each) for each in calls]
        bound_tasks(len(given), load_settings().PUBLISH_LIMIT)
        return self._enqueue(task, given)

    aenqueue_many = in_thread(enqueue_many)

    def _enqueue(self, task: Task, calls: list[Call]) -> list[TaskResult]:
        shared = {**self._options_of(task), "priority": priority_of(task.priority, task.run_after)}
        nonce = os.urandom(8).hex()
        data = [self._data(task, args, kwargs, nonce) for args, kwargs in calls]
        settings = load_settings()
        try:
            texts = [json_text("the arguments", each, settings.PAYLOAD_LIMIT, settings.PAYLOAD_DEPTH) for each in data]
        except TaskError as error:
            raise PublishRefused(str(error)) from None
        made = enqueue(task.queue_name, shared, task.run_after, texts, settings.INVISIBLE_FOR) if texts else []
        results = [
            new_result(pk, created, each, task, self.alias) for (pk, created), each in zip(made, data, strict=True)
        ]
        if is_heard(task_enqueued, logging.DEBUG):
            for result in results:
                send(task_enqueued, type(self), result)
        return results

    def _options_of(self, task: Task) -> Mapping[str, object]:
        """Return what all calls of a task have in common; refuse a task that cannot be enqueued or run."""
        known = self._known.get(id(task))
        # Tasks cannot be changed, so each is checked once.
        if known is None or known.task is not task:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            known = self._known[id(task)] = Known(task, self._checked(task))
        return known.options

    def _checked(self, task: Task) -> dict[str, object]:
        options = self.own_options
        self.validate_task(task)
        self._check_found(task)
        if wrong := queue_name_problem(task.queue_name):
            raise PublishRefused(wrong)
        action = DJANGO + task.module_path
        if len(action) > ACTION_LENGTH:
            raise PublishRefused(f"{task.module_path} is longer than {ACTION_LENGTH - len(DJANGO)} characters")
        if problem := moment_problem(task.run_after):
            raise PublishRefused(f"run_after={task.run_after} {problem}")
        return {
            "action": action,
            "max_attempts": _most_attempts(task, options),
            "timeout": options.timeout,
            "retention": options.retention,
        }

    def _data(self, task: Task, args: Sequence[object], kwargs: Mapping[str, object], nonce: str) -> JsonObject:
        call = {"args": normalize_json(list(args)), "kwargs": normalize_json(dict(kwargs))}
        data = {**call, "backend": self.alias, NONCE: nonce}
        return data if task.run_after is None else {**data, "run_after": task.run_after.isoformat()}

    def get_result(self, result_id: str) -> TaskResult:
        """Return the result with that id; raise ``TaskResultDoesNotExist`` if this backend has none."""
        given = str(result_id)
        match = RESULT_ID.fullmatch(given)
        rows = task_rows(home()).select_related("queue").filter(action__startswith=DJANGO)
        # If the task's function is gone, there is no result either.
        results = results_of(read_with_history(rows.filter(pk=match[1])[:1]), resolve) if match else []
        if not results or (results[0].backend, results[0].id) != (self.alias, given):
            raise no_result(f"there is no result {given[:64]!r}")
        return results[0]

    def check(self, **kwargs: object) -> list[checks.CheckMessage]:
        """Return the errors tasks.E201 (app missing), E202 (wrong options) and E203 (tasks that no worker imports)."""
        messages: list[checks.CheckMessage] = [
            checks.Error(
                f"TASKS[{self.alias!r}] needs the app {app!r}.", hint=f"Add {app!r} to INSTALLED_APPS.", id="tasks.E201"
            )
            for app in ("stator", "tasks")
            if not apps.is_installed(app)
        ]
        if self._problem:
            hint = "See the options of the backend in the guide."
            return [*messages, checks.Error(f"TASKS[{self.alias!r}]: {self._problem}.", hint=hint, id="tasks.E202")]
        mine = sorted(module for alias, module in _declared if alias == self.alias and module in sys.modules)
        return messages + [
            checks.Error(
                f"TASKS[{self.alias!r}]: workers do not import the tasks of {module}, which is in no installed app.",
                hint=REMEDY.format(self.alias, module),
                id="tasks.E203",
            )
            for module in mine
            if not _may_import(module)
        ]

    @cached_property
    def own_options(self) -> BackendOptions:
        """Return the checked ``OPTIONS``; raise ``ImproperlyConfigured`` with one line if they cannot work."""
        if self._problem:
            raise ImproperlyConfigured(f"TASKS[{self.alias!r}]: {self._problem}")
        return BackendOptions(**self.options)

    def _check_found(self, task: Task) -> None:
        """Raise ``PublishRefused`` for a task that no worker would find by its path."""
        path = task.module_path
        # ``using()`` makes another task for each call, with the same function.
        if path in self._resolved:
            return
        module = task.func.__module__
        if not _may_import(module):
            raise PublishRefused(
                f"{path} is in no installed app, so workers do not import it. {REMEDY.format(self.alias, module)}"
            )
        if not isinstance(getattr(sys.modules.get(module), task.func.__name__, None), Task):
            raise PublishRefused(
                f"{path} is not a task, so workers do not run it; give the task the name of its function there"
            )
        self._resolved.add(path)


# Modules that declare tasks, each with the alias of the backend.
_declared: set[tuple[str, str]] = set()


@dataclass(frozen=True, kw_only=True)
class DjangoAction(RegisteredAction):
    """A function of Django's Tasks framework, as an action.

    On a first attempt, its result is built from the row alone; on a later one, the earlier attempts are read from the
    database.
    """

    task: Task
    queues: frozenset[str] = frozenset()

    def arguments(self, context: Context) -> tuple[list[object], JsonObject]:
        """Return the arguments it was enqueued with, after the context if it takes one."""
        data: Json = context.task.data
        before: list[object] = [TaskContext(task_result=_result_of(context.task))] if self.takes_context else []
        return [*before, *data["args"]], data["kwargs"]

    def acall(self, context: Context) -> Coroutine[object, None, object]:
        """Call a coroutine function, and return the coroutine."""
        if self.takes_context and has_past(context.task):
            return self._acall_with_past(context)
        return super().acall(context)

    async def _acall_with_past(self, context: Context) -> object:
        bound: Callable[[], Awaitable[object]] = await sync_to_async(contained)(self.bound, context)
        return await bound()

    async def backoff_after(self, error: BaseException, task: TaskRow) -> Delay | None:
        """Return the seconds that the task's own ``backoff`` says, or None; else the back-off of ``OPTIONS``."""
        # A task of another class may come from ``django-tasks`` beside ``django.tasks``.
        own: BackoffFunction | None = getattr(self.task, "backoff", None)
        if own is None:
            return self.backoff
        return await sync_to_async(contained)(self._own_delay, own, error, task)

    def _own_delay(self, own: BackoffFunction, error: BaseException, task: TaskRow) -> float | None:
        return delay_of(self.task, own, error, failed(_result_of(task), error))

    @property
    def is_heard(self) -> bool:
        """Whether anything observes ``task_started``."""
        return is_heard(task_started)

    async def begin(self, context: Context) -> None:
        """Send ``task_started``."""
        if not is_heard(task_started):
            return
        # Receivers are synchronous and may query the database.
        if is_received(task_started) or has_past(context.task):
            await sync_to_async(contained)(self._started, context)
        else:
            self._started(context)

    def result_of(self, value: object) -> object:
        """Return the value normalized as Django does: mappings, sequences and text as their JSON types."""
        return value if type(value) in PLAIN else normalize_json(value)

    def _started(self, context: Context) -> None:
        result = _result_of(context.task)
        send(task_started, type(task_backends[result.backend]), result)


def action_of(path: str, queue: str, data: object) -> DjangoAction:
    """Return the action for a task's path, queue and data.

    Raise ``NoHandler`` unless the path leads to a task and the backend serves that queue.
    """
    task = resolve(path)
    alias = variant_of(data)
    if alias not in task_backends.settings:
        raise NoHandler(f"no handler: {alias!r} is not a StatorBackend in TASKS")
    backend = task_backends[alias]
    if not isinstance(backend, StatorBackend):
        raise NoHandler(f"no handler: {alias!r} is not a StatorBackend in TASKS")
    action = _action(DJANGO + path, task.func, backend.own_options, task, backend.queues)
    if action.queues and queue not in action.queues:
        raise NoHandler(f"no handler: TASKS[{alias!r}] has no queue {queue!r}")
    return action


def resolve(path: str) -> Task:
    """Return the task of that path, from a module that is loaded, in an installed app, or listed in ``modules``.

    Raise ``NoHandler`` for a path in any other module, without importing it. Only a task is ever returned.
    """
    name, attribute = _parts_of(path)
    module = sys.modules.get(name)
    if module is None and _may_import(name):
        try:
            module = import_module(name)
        except ImportError as error:
            raise NoHandler(f"no handler: {name} cannot be imported: {error}") from error
    task = vars(module).get(attribute) if module is not None else None
    if not isinstance(task, Task):
        raise NoHandler(f"no handler: {path} is not a task of an installed app; check that it is decorated with @task")
    return task


@lru_cache(maxsize=1000)
def _parts_of(path: str) -> tuple[str, str]:
    match = PATH.fullmatch(path)
    if match is None:
        raise NoHandler(f"no handler: {path[:200]!r} is not the path of a function")
    return match[1], match[2]


def tell_finished(
    sender: type[Model],
    moves: Iterable[Move],
    using: str,
    failures: Iterable[tuple[object, Failure]] = (),
    instances: Mapping[object, TaskRow] | None = None,
    **kwargs: object,
) -> None:
    """Send ``task_finished`` for the ended tasks of Django's framework."""
    # The framework logs failed tasks as errors, so their signals are sent even if nothing else receives them.
    all_wanted = is_heard(task_finished)
    others = {pk for pk, task in (instances or {}).items() if not task.action.startswith(DJANGO)}
    wanted = [move for move in moves if move.to in STATUSES and (all_wanted or move.to != "completed")]
    ended = [move.pk for move in wanted if move.pk not in others]
    if not ended:
        return
    # Queues are read by a separate query: with stale statistics, a join would read all tasks of a queue.
    rows = task_rows(using).filter(pk__in=ended, action__startswith=DJANGO).prefetch_related("queue")
    of_pk = dict(failures)
    for result in results_of(read_with_history(rows), resolve):
        failure = of_pk.get(number_of(result))
        error, is_logged = (failure.loggable, not failure.deliberate) if failure else (None, False)
        for receiver, answer in send_finished(result, error, is_logged=is_logged):
            if isinstance(answer, BaseException):
                logger.error("tasks.receiver_failed", extra={"receiver": repr(receiver)}, exc_info=answer)


def _connect(model: type[Model]) -> None:
    transitioned.connect(tell_finished, sender=model, dispatch_uid="tasks.backend")


# Connected on import, because without this module no such tasks exist.
apps.lazy_model_operation(_connect, ("tasks", "task"))


def _action(
    name: str, function: Callable[..., object], options: BackendOptions, task: Task, queues: Iterable[str]
) -> DjangoAction:
    return DjangoAction(
        name=name,
        function=function,
        task=task,
        queues=frozenset(queues),
        takes_context=task.takes_context,
        errors_are_final=_most_attempts(task, options) is None,
        **shared_options(options) | {"max_attempts": _most_attempts(task, options)},
    )


def _most_attempts(task: Task, options: BackendOptions) -> int | None:
    # A task of another class may come from ``django-tasks`` beside ``django.tasks``.
    own: int | None = getattr(task, "max_attempts", None)
    return options.max_attempts if own is None else own


def _result_of(row: TaskRow) -> TaskResult:
    """Return the result of a row that is being attempted; raise ``NoHandler`` if its task cannot be restored."""
    if has_past(row):
        add_history(row)
    results = results_of([row], resolve)
    if not results:
        raise NoHandler(f"no handler: {row.action} cannot be loaded as it was enqueued")
    return results[0]


def _may_import(name: str) -> bool:
    belongs = (config.name for config in apps.get_app_configs())
    return any(name == package or name.startswith(f"{package}.") for package in belongs) or any(
        name in backend.own_options.modules for backend in _usable_backends()
    )


def _usable_backends() -> Iterator[StatorBackend]:
    for alias in task_backends.settings:
        try:
            backend = task_backends[alias]
        except Exception:  # noqa: BLE001 - of another alias: Django's check tells it, and whoever uses that alias
            continue
        if isinstance(backend, StatorBackend) and not backend._problem:
            yield backend


def _call(given: object) -> Call:
    match given:
        case (list() | tuple() as args, dict() as kwargs):
            return list(args), kwargs
    raise TypeError(f"each call must be a pair (list, dictionary) of arguments, not {given!r:.80}")
