"""Tasks with retries of their own, in the spelling of Django's open proposal: django/new-features 142."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Concatenate, Literal, ParamSpec, TypedDict, TypeVar, Unpack, overload

from tasks.actions.registry import AttemptOptions, is_delay
from tasks.backend import framework
from tasks.backend.framework import Task, TaskContext, TaskResult

Given = ParamSpec("Given")
Result = TypeVar("Result")

# Called with the error and the task's result, which has it already; returns seconds, or None to end the task.
BackoffFunction = Callable[[BaseException, TaskResult], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatorTask(Task):
    """A task of the framework with options of the proposal. None takes the ``OPTIONS`` of the backend."""

    max_attempts: int | None = None
    backoff: BackoffFunction | None = None


class TaskOptions(TypedDict, total=False):
    """The options of :func:`task`, and of the framework's, but for ``takes_context``."""

    priority: int | None
    queue_name: str | None
    backend: str | None
    max_attempts: int | None
    backoff: BackoffFunction | None


@overload
def task(function: Callable[Given, Result], /) -> "Task[Given, Result]": ...


@overload
def task(
    *, takes_context: Literal[True], **options: Unpack[TaskOptions]
) -> "Callable[[Callable[Concatenate[TaskContext[Any, Any], Given], Result]], Task[Given, Result]]": ...


@overload
def task(
    *, takes_context: Literal[False] = False, **options: Unpack[TaskOptions]
) -> "Callable[[Callable[Given, Result]], Task[Given, Result]]": ...


def task(
    function: Callable[..., Any] | None = None,
    *,
    max_attempts: int | None = None,
    backoff: BackoffFunction | None = None,
    **options: Any,
) -> Any:
    """Declare a task as the framework's ``@task`` does, with two options of Django's open proposal for retries.

    Neither is part of Django yet, and the proposal may change. ``max_attempts``: how often the task runs at the most.
    ``backoff``: a function of the error and the task's result, which already has this attempt and its error; it returns
    the seconds until the next attempt, or None to end the task. Another backend than ``StatorBackend`` ignores both.
    """

    def declare(function: Callable[..., Any]) -> Task:
        declared = framework.task(**options)(function)
        if not isinstance(declared, StatorTask):
            return declared
        return replace(declared, max_attempts=max_attempts, backoff=backoff)

    return declare if function is None else declare(function)


def problem_of(declared: Task) -> str:
    """Return one sentence on the first option that cannot work; empty if there is none."""
    if not isinstance(declared, StatorTask):
        return ""
    for problem in AttemptOptions(max_attempts=declared.max_attempts).problems():
        return problem
    if declared.backoff is not None and not _takes_two(declared.backoff):
        return f"backoff={declared.backoff!r:.80} must be a function of the exception and the task result"
    return ""


def delay_of(declared: Task, function: BackoffFunction, error: BaseException, result: TaskResult) -> float | None:
    """Return what the function ``backoff`` of a task says after an error: seconds, or None if the task has failed."""
    delay = function(error, result)
    if delay is not None and not is_delay(delay):
        raise TypeError(f"backoff of {declared.module_path} returned {delay!r:.80}; return seconds or None")
    return delay


def _takes_two(function: object) -> bool:
    try:
        inspect.signature(function).bind(None, None)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return True
