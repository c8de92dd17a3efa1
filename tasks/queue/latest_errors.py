"""The latest error of tasks: what a worker process reported, or what a named worker gave as its reason."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath

from django.db.models import Max
from django.db.models.functions import Right

from stator.rows.readings import read
from tasks.failures import last_line
from tasks.rows.tables import run_rows, task_model

# Characters at the end of a traceback, which has the frame that raised the error.
END = 1500

# The columns of runs that lead to their task, or to the one that it is a part of.
OF_TASK = ["task"]
OF_TASK += ["task__whole"]  # tasks.extensions.shared

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


def errors_of(pks: Iterable[int], using: str) -> dict[int, TaskFailure]:
    """Return the latest errors of tasks by key; a shared task has the errors of its parts. At most four statements."""
    tasks = list(pks)
    reported = _reported(tasks, using)
    # A program says what went wrong in its own words, so its report has no place; a worker process has a run, too.
    return reported | _reasons(tasks, using) | {pk: error for pk, error in reported.items() if error.place}


def _reported(pks: list[int], using: str) -> dict[int, TaskFailure]:
    """Return the errors that are reported of these tasks."""
    label = task_model()._meta.label_lower
    columns = ("object_pk", "error", "message", Right("traceback", END), "fingerprint")
    reports = read("reported", using, label, map(str, pks), columns, otherwise=())
    return {
        int(pk): TaskFailure(last_line(f"{error}: {message}".partition("\n")[0]), _place(trace), fingerprint)
        for pk, error, message, trace, fingerprint in reports
    }


def _reasons(pks: list[int], using: str) -> dict[int, TaskFailure]:
    """Return the reasons of the last failed claims of these tasks, or of their parts."""
    failed = run_rows(using).filter(outcome="failed").exclude(reason="")
    # A task may have a thousand parts, and each of them many claims, so the database finds the last ones.
    latest: dict[int, int] = {}
    for of in OF_TASK:
        latest |= dict(failed.filter(**{f"{of}__in": pks}).values_list(of).annotate(Max("pk")))
    reasons = dict(failed.filter(pk__in=latest.values()).values_list("pk", "reason"))
    reason_of = {pk: reasons[run] for pk, run in latest.items() if run in reasons}
    return {pk: TaskFailure(last_line(reason), _place(reason)) for pk, reason in reason_of.items()}


def _place(trace: str) -> str:
    """Return the file, line and function of the last frame of a traceback."""
    frames = _FRAME.findall(trace)
    if not frames:
        return ""
    file, line, function = frames[-1]
    return f"{'/'.join(PurePath(file).parts[-2:])}, line {line}, in {function}"
