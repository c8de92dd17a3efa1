"""Notices of dead letters: ``NOTIFY`` is called once for each task that ended without success.

It is also called for the first of several ticks in a row whose periodic function failed.
"""

import json
import logging
from dataclasses import dataclass, field
from typing import Any

from django.core.mail import mail_admins
from django.views.debug import get_default_exception_reporter_filter

from stator.claims import bounded
from stator.texts import Json
from tasks.models import Task
from tasks.queue import runs

logger = logging.getLogger("tasks.dead_letters")

# The most characters of the data in a letter.
DATA_LENGTH = 20_000


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


def letter_of(task: Any) -> DeadLetter:
    """Return the dead letter of a task: its attempts, or its parts' attempts, since it was published or requeued.

    Another row says itself what is in its ``letter``.
    """
    if not isinstance(task, Task):
        return DeadLetter(id=task.pk, **task.letter())
    attempts = runs.attempts_of(task)
    return DeadLetter(
        id=task.pk,
        queue=task.queue.name,
        action=task.action,
        data=task.data,
        attempts=len(attempts),
        workers=list(dict.fromkeys(worker for _, worker, _ in attempts)),
        errors=runs.errors_in(attempts),
        is_logged=runs.of_task(task).order_by("-pk").values_list("outcome", flat=True).first() == "failed",
    )


def _text(data: object) -> str:
    masked = get_default_exception_reporter_filter().cleanse_setting("", data)
    return bounded(json.dumps(masked, ensure_ascii=False), DATA_LENGTH)
