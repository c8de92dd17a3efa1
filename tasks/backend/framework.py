"""Imports of Django's Tasks framework: ``django.tasks`` from Django 6.0 on, the package ``django-tasks`` before."""

import logging
import sys
from contextvars import ContextVar
from weakref import ref

from django.conf import settings
from django.dispatch import Signal
from django.utils.log import AdminEmailHandler

from stator.signals import send_contained

try:
    from django.tasks import signals, task, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
    from django.tasks.exceptions import TaskException, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json
except ImportError:
    from django_tasks import signals, task, task_backends  # type: ignore[assignment,no-redef]
    from django_tasks.backends.base import BaseTaskBackend  # type: ignore[assignment]
    from django_tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus  # type: ignore[assignment]
    from django_tasks.exceptions import TaskException, TaskResultDoesNotExist  # type: ignore[assignment]
    from django_tasks.signals import task_enqueued, task_finished, task_started
    from django_tasks.utils import normalize_json

__all__ = [
    "BaseTaskBackend", "Task", "TaskContext", "TaskError", "TaskException", "TaskResult", "TaskResultDoesNotExist",
    "TaskResultStatus", "is_heard", "is_received", "no_result", "normalize_json", "send", "send_finished", "task",
    "task_backends", "task_enqueued", "task_finished", "task_started",
]  # fmt: skip


# The package, its signals, and the modules whose receivers only log.
PACKAGE = "django_tasks"
NAMES = ("task_enqueued", "task_started", "task_finished")
OTHER = f"{PACKAGE}.signals"
OWN = ("django.tasks.signals", OTHER)

# The logger that has logged the error of an attempt before ``task_finished`` is sent, and that error.
WORKER = logging.getLogger("stator.worker")
LOGGED: ContextVar[BaseException | None] = ContextVar("tasks_logged", default=None)


def is_heard(signal: Signal, level: int = logging.INFO) -> bool:
    """Return whether anything observes the signal: the framework's log at that level, or a receiver."""
    return signals.logger.isEnabledFor(level) or is_received(signal)


def is_received(signal: Signal) -> bool:
    """Return whether the signal, or its twin in the other package, has receivers besides the framework's loggers."""
    before, known = _asked.get(signal, NEVER)
    # Asked for each task, and it changes as good as never.
    if before != signal.receivers:
        known = _ask(signal)
    return known or (sys.modules.get(OTHER, signals) is not signals and bool(_twins(signal)))


def send(signal: Signal, sender: type, result: TaskResult) -> None:
    """Send a signal, and its twin in ``django-tasks`` if a project uses that package beside ``django.tasks``."""
    for each in (signal, *_twins(signal)):
        each.send(sender, task_result=result)


def no_result(message: str) -> TaskResultDoesNotExist:
    """Return the error for a result that does not exist; if both packages are used, it is an error of both."""
    other = sys.modules.get(f"{PACKAGE}.exceptions")
    kind = TaskResultDoesNotExist if other is None else other.TaskResultDoesNotExist
    if kind is TaskResultDoesNotExist:
        return TaskResultDoesNotExist(message)
    of_both: type[TaskResultDoesNotExist] = type(
        kind.__name__, (TaskResultDoesNotExist, kind), {"__module__": TaskResultDoesNotExist.__module__}
    )
    return of_both(message)


# Signals with the receivers that each had when it was asked last, and whether others than loggers were among them.
_asked: dict[Signal, tuple[list[object], bool]] = {}
NEVER: tuple[list[object], bool] = ([], False)


def _ask(signal: Signal) -> bool:
    receivers = [each() if isinstance(each, ref) else each for _, each, *_ in signal.receivers]
    known = any(getattr(each, "__module__", "") not in OWN for each in receivers)
    _asked[signal] = list(signal.receivers), known
    return known


def _twins(signal: Signal) -> list[Signal]:
    """Return the signal of the same name in ``django-tasks``, if the two differ and it has receivers."""
    package = sys.modules.get(OTHER)
    if package is None or package is signals:
        return []
    twins = [getattr(package, name) for name in NAMES if getattr(signals, name) is signal]
    return [twin for twin in twins if _ask(twin)]


def send_finished(
    result: TaskResult, error: BaseException | None, *, is_logged: bool = False
) -> list[tuple[object, object]]:
    """Send ``task_finished`` as the framework does: while ``error`` is handled, so that its log has the traceback.

    ``is_logged``: ``stator.attempt_failed`` has the error, so the framework does not log it to the same places again.
    """
    if error is None:
        return _send_finished(result)
    before = LOGGED.set(error if is_logged else None)
    try:
        raise error
    except BaseException:  # noqa: BLE001 - the error ended an attempt and is recorded already
        return _send_finished(result)
    finally:
        LOGGED.reset(before)


def _send_finished(result: TaskResult) -> list[tuple[object, object]]:
    sender, wanted = type(task_backends[result.backend]), (task_finished, *_twins(task_finished))
    return [answer for signal in wanted for answer in send_contained(signal, sender, task_result=result)]


def _is_news(record: logging.LogRecord) -> bool:
    """Return whether a record of the framework has another error than the worker's log, or goes to another place."""
    error = LOGGED.get()
    if error is None or not record.exc_info or record.exc_info[1] is not error:
        return True
    return not WORKER.isEnabledFor(logging.ERROR) or bool(_places(signals.logger, record) - _places(WORKER, record))


def _places(logger: logging.Logger | None, record: logging.LogRecord) -> set[object]:
    """Return the streams that a record of a logger is written to, and the handlers that have no stream."""
    places = set[object]()
    while logger is not None:
        takes = (one for one in logger.handlers if record.levelno >= one.level and one.filter(record))
        # Django's own handler mails nothing if nobody is named.
        said = (one for one in takes if settings.ADMINS or not isinstance(one, AdminEmailHandler))
        places.update(getattr(one, "stream", one) for one in said)
        logger = logger.parent if logger.propagate else None
    return places


signals.logger.addFilter(_is_news)
