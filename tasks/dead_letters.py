"""Notices of dead letters: ``NOTIFY`` is called once for each task that ended without success.

It is also called for the first of several ticks in a row whose periodic function failed.
"""

import json
import logging
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import datetime
from operator import itemgetter
from typing import Any

from django.core.mail import mail_admins
from django.db.models import Model, OuterRef, QuerySet, Subquery
from django.utils.module_loading import import_string
from django.views.debug import get_default_exception_reporter_filter

from stator.claims import bounded
from stator.models import Now, names_of
from stator.rows.readings import read
from stator.texts import Json
from tasks.conf import load_settings
from tasks.models import Run, Schedule, Task
from tasks.queue import runs
from tasks.rows.clock import Later

logger = logging.getLogger("tasks.dead_letters")

# Seconds until a notice is sent again after sending failed or the sending process died.
AGAIN = 600.0

# The most notices that one call sends; the next call sends the rest.
MAX_NOTICES = 100

# The limits of a letter: characters of data, attempts (the latest ones), and characters of an error.
DATA_LENGTH, ERRORS, ERROR_LENGTH = 20_000, 200, 2_000

# The time of an attempt, its worker, and its error.
Attempt = tuple[datetime, str, str]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A task that ended without success, the workers that had it, and every error as ``worker: message``.

    ``is_logged``: its last attempt failed with an error, which ``stator.attempt_failed`` has logged.
    ``schedule``: the letter is not of a task but of a tick of this schedule, whose periodic function failed for good.
    ``id`` is the schedule's, ``attempts`` the number of ticks in a row, and there is neither queue nor data.
    """

    id: int
    queue: str
    action: str
    # The data is not in the letter's text, because reports of errors contain that text.
    data: Json = field(repr=False)
    attempts: int
    workers: list[str]
    errors: list[str] = field(repr=False)
    is_logged: bool = False
    schedule: str = ""

    def __str__(self) -> str:
        if self.schedule:
            return f"a tick of schedule {self.schedule}"
        return f"task {self.id} ({self.action}) of queue {self.queue}"


def send_notices(using: str, pks: list[int] | None = None) -> int:
    """Send the notices of dead letters that have none yet, up to 100, and of failed ticks; return how many were sent.

    ``pks``: consider only these tasks. A process reserves a notice in the row before it sends it, so that no other
    process sends it too. If it dies or sending fails, another process tries again after ten minutes.
    """
    rows: QuerySet[Task] = QuerySet(Task, using=using).filter(state="errored", whole=None, notice_due__lte=Now())
    if pks is not None:
        return _send_due(rows.filter(pk__in=pks))
    failed: QuerySet[Schedule] = QuerySet(Schedule, using=using).filter(failed_ticks__gt=0, notice_due__lte=Now())
    return _send_due(rows) + _send_due(failed)


def _send_due(due: QuerySet[Model]) -> int:
    sent = 0
    for pk in list(due.order_by("notice_due").values_list("pk", flat=True)[:MAX_NOTICES]):
        if due.filter(pk=pk).update(notice_due=Later(AGAIN)):
            sent += _send(QuerySet(due.model, using=due.db).filter(pk=pk))
    return sent


def mail_administrators(letter: DeadLetter) -> None:
    """Send a mail to ``ADMINS`` and log it; the default of ``NOTIFY``.

    The log has neither data nor errors, and a second record at the level error only if the first is missing. The mail
    masks the data as Django's reports of errors mask settings.
    """
    logger.log(
        logging.WARNING if letter.is_logged else logging.ERROR,
        "tasks.dead_letter",
        extra={
            "schedule" if letter.schedule else "task": letter.id, "queue": letter.queue, "action": letter.action,
            "attempts": letter.attempts, "workers": letter.workers,
        },
    )  # fmt: skip
    lines = [
        f"Workers: {', '.join(letter.workers) or 'none'}", "Errors:", *(letter.errors or ["no error is recorded"])
    ]  # fmt: skip
    if letter.schedule:
        ended = f"{letter} failed for good."
        lines = [ended, *lines, "The next tick fires as planned. No further tick is told until one has succeeded."]
    else:
        ended = f"{letter} ended without success after {letter.attempts} attempts."
        of_task = "It is stored until its retention is over. Requeue it after the cause is fixed."
        lines = [ended, lines[0], f"Data: {_text(letter.data)}", *lines[1:], of_task]
    mail_admins(" ".join(f"Dead letter: {letter}".split()), "\n\n".join(lines))


def letter_of(task: Task | Schedule) -> DeadLetter:
    """Return the dead letter of a task: its attempts, or its parts' attempts, since it was published or requeued."""
    if isinstance(task, Schedule):
        return _letter_of_tick(task)
    attempts = _attempts(task)
    return DeadLetter(
        id=task.pk,
        queue=task.queue.name,
        action=task.action,
        data=task.data,
        attempts=len(attempts),
        workers=list(dict.fromkeys(worker for _, worker, _ in attempts)),
        errors=_errors_in(attempts),
        is_logged=runs.of_task(task).order_by("-pk").values_list("outcome", flat=True).first() == "failed",
    )


def _letter_of_tick(schedule: Schedule) -> DeadLetter:
    using = str(schedule._state.db)
    report = read("report", using, Schedule, schedule.pk, otherwise=None)
    names = names_of({report.worker} if report else set(), using)
    return DeadLetter(
        id=schedule.pk, queue="", action=schedule.name, data=None, attempts=schedule.failed_ticks,
        workers=sorted(names.values()), errors=[schedule.last_error], is_logged=True, schedule=str(schedule),
    )  # fmt: skip


def errors_of(task: Task) -> list[str]:
    """Return the errors of a task, or of its parts, since it was published or requeued, as ``worker: message``."""
    return _errors_in(_attempts(task))


def _errors_in(attempts: list[Attempt]) -> list[str]:
    return [f"{worker}: {bounded(error, ERROR_LENGTH)}" for _, worker, error in attempts if error]


def _attempts(task: Task) -> list[Attempt]:
    """Return the attempts of a task, or of its parts, since it was published or requeued, the first one first.

    The error of an attempt that succeeded or still runs is empty.
    """
    stays = runs.of_task(task).filter(task=OuterRef("task")).order_by("-version").filter(version__gte=0)
    latest = runs.of_task(task).filter(version=Subquery(stays.values("version")[:1])).select_related("task")
    attempts = [(run.claimed, run.worker, _error_of(run)) for run in latest.order_by("-pk")[:ERRORS]]
    return sorted(attempts, key=itemgetter(0))


def _error_of(run: Run) -> str:
    if run.outcome in ("succeeded", "waited"):
        return ""
    if run.ended is None:
        return "" if run.task.state_claim == run.token else "its lease ran out"
    return run.reason or f"{run.outcome} without a reason"


def _send(row: QuerySet[Any]) -> bool:
    task = row.select_related("queue").first()
    if task is None:
        return False
    try:
        copy_context().run(import_string(load_settings().NOTIFY), letter_of(task))
    except BaseException:
        logger.exception("tasks.notice_failed", extra={task._meta.model_name: task.pk})
        return False
    row.update(notice_due=None)
    return True


def _text(data: object) -> str:
    masked = get_default_exception_reporter_filter().cleanse_setting("", data)
    return bounded(json.dumps(masked, ensure_ascii=False), DATA_LENGTH)
