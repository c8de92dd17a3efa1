"""The ``OPTIONS`` of a backend for Django's Tasks framework, and their checks."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

from stator.graph.backoff import MAX_SECONDS
from stator.texts import nearest
from tasks.actions.registry import AttemptOptions, is_delay
from tasks.queue.rules import queue_name_problem

# Options that are passed on to the action.
SHARED = [option.name for option in fields(AttemptOptions)]


@dataclass(frozen=True, kw_only=True)
class BackendOptions(AttemptOptions):
    """The ``OPTIONS`` of a backend. Durations are in seconds. None takes the queue's value, or else the setting's.

    Without ``max_attempts``, an error ends the task; an attempt that was lost with its worker is repeated in either
    case. ``modules``: further modules whose tasks may run, besides the modules of installed apps.
    """

    retention: float | None = None
    modules: tuple[str, ...] = ()

    def problems(self) -> Iterator[str]:
        """Yield one sentence for each option that cannot work."""
        yield from super().problems()
        if self.retention is not None and not is_delay(self.retention):
            yield f"retention={self.retention!r} must be a number of seconds from 0 to {MAX_SECONDS:.0f}, or None"
        if not isinstance(self.modules, list | tuple) or not all(isinstance(name, str) for name in self.modules):
            yield f"modules={self.modules!r} must be a list of module names"


KNOWN = frozenset(option.name for option in fields(BackendOptions))


def shared_options(options: BackendOptions) -> dict[str, Any]:
    """Return the options that are passed on to the action."""
    return {name: getattr(options, name) for name in SHARED}


def problem(given: object, queues: Iterable[object]) -> str:
    """Return one line on the first problem in ``OPTIONS`` or ``QUEUES``; empty if there is none."""
    return _problem_of_options(given) or _problem_of_queues(queues)


def _problem_of_options(given: object) -> str:
    if not isinstance(given, dict):
        return f"OPTIONS={given!r} must be a dictionary"
    if unknown := sorted(map(str, given.keys() - KNOWN)):
        return f"OPTIONS: {unknown[0]!r} is not an option; {nearest(unknown[0], KNOWN)}"
    for name, value in given.items():
        if isinstance(value, timedelta):
            return f"OPTIONS: {name}={value!r} must be a number of seconds; write {value.total_seconds():g}"
    wrong = next(BackendOptions(**given).problems(), "")
    return wrong and f"OPTIONS: {wrong}"


def _problem_of_queues(queues: Iterable[object]) -> str:
    for name in queues:
        if wrong := queue_name_problem(name):
            return f"QUEUES: {wrong}"
    return ""
