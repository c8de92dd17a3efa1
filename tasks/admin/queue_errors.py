"""The errors of tasks, for lists, and dead letters of one queue by the place of their error, for its page."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from django.db.models import QuerySet
from django.db.models.functions import Right

from stator.models import Report
from tasks.failures import last_line
from tasks.models import Queue, Run, Task

# Dead letters that are read, the latest first. Dead letters with one error are requeued together.
READ = 200

# The most dead letters, of all queues, that are searched for one queue's.
MAX_SEARCHED = 10_000

# Characters at the end of a traceback, which has the frame that raised the error.
END = 1500

_FRAME = re.compile(r'File "([^"]+)", line (\d+), in (\S+)')
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """The latest error of a task: as one line, where it was raised, and its fingerprint if a process recorded it."""

    line: str
    place: str = ""
    fingerprint: str = ""

    @property
    def group(self) -> str:
        """Equal for errors of one place; without a place for errors whose first words differ in numbers alone."""
        return self.place or self.fingerprint or _NUMBER.sub("", self.line.partition(":")[0])


@dataclass(slots=True)
class DeadGroup:
    """Dead letters with errors of one place; ``latest`` is the error of the latest one."""

    latest: TaskFailure
    pks: list[int] = field(default_factory=list)


def dead_by_error(queue: Queue) -> list[DeadGroup]:
    """Return a queue's latest dead letters by the place of their last error, most first; three statements."""
    using = str(queue._state.db)
    # The framework's index of resting rows lacks the queue, so this reads the latest dead letters of all queues.
    dead = Task.objects.using(using).dead_letters()
    latest = dead.order_by("-state_next_attempt", "-state_changed").values_list("pk", "queue")[:MAX_SEARCHED]
    pks = [pk for pk, of in latest if of == queue.pk][:READ]
    errors, groups = errors_of(pks, using), dict[str, DeadGroup]()
    for pk in pks:
        error = errors.get(pk, TaskFailure("no error is stored"))
        groups.setdefault(error.group, DeadGroup(error)).pks.append(pk)
    return sorted(groups.values(), key=lambda group: -len(group.pks))


def errors_of(pks: Iterable[int], using: str) -> dict[int, TaskFailure]:
    """Return the latest errors of tasks by key; two statements, none without tasks."""
    pks = list(pks)
    return _reported(pks, using) | _reasons(pks, using) if pks else {}


def _reported(pks: list[int], using: str) -> dict[int, TaskFailure]:
    """Return the errors of actions that worker processes ran."""
    reports = Report.objects.using(using).filter(model_label=Task._meta.label_lower, object_pk__in=map(str, pks))
    found = reports.exclude(error="").values_list(
        "object_pk", "error", "message", Right("traceback", END), "fingerprint"
    )
    return {
        int(pk): TaskFailure(last_line(f"{error}: {message}".partition("\n")[0]), _place(trace), fingerprint)
        for pk, error, message, trace, fingerprint in found
    }


def _reasons(pks: list[int], using: str) -> dict[int, TaskFailure]:
    """Return what named workers gave as the reason of their last failed claims."""
    runs: QuerySet[Any] = QuerySet(Run, using=using)
    failed = runs.filter(task__in=pks, outcome="failed").exclude(reason="").order_by("pk")
    return {
        task: TaskFailure(last_line(reason), _place(reason)) for task, reason in failed.values_list("task", "reason")
    }


def _place(trace: str) -> str:
    """Return the file, line and function of the last frame of a traceback."""
    frames = _FRAME.findall(trace)
    if not frames:
        return ""
    file, line, function = frames[-1]
    return f"{'/'.join(PurePath(file).parts[-2:])}, line {line}, in {function}"
