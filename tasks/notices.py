"""Dead letters: tasks that ended without success are told to people, each once."""

import json
import logging
from dataclasses import dataclass
from typing import Any

from django.core.mail import mail_admins
from django.db.models import Max, QuerySet
from django.db.models.functions import Now
from django.utils.module_loading import import_string

from stator.claims import bounded
from stator.models import History, Report
from tasks.claiming import worker_digits
from tasks.conf import load_settings
from tasks.expressions import Later
from tasks.models import Task

logger = logging.getLogger("tasks.notices")

# A notice that could not be sent, or whose sender died, is sent again after so many seconds.
AGAIN = 600.0

# Notices that one call sends; the rest are for the next.
MOST = 100

DATA_LENGTH, ERRORS, ERROR_LENGTH = 20_000, 200, 2_000


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A task that ended without success, the workers that had it, and every error: ``worker: what it said``."""

    id: int
    queue: str
    action: str
    data: Any
    attempts: int
    workers: list[str]
    errors: list[str]

    def __str__(self) -> str:
        return f"task {self.id} ({self.action}) of queue {self.queue}"


def send_notices(using: str, pks: list[Any] | None = None) -> int:
    """Tell of dead letters that nobody was told of, all of them or these; return how many.

    Who notes in the row that he tells of it is the only one to do so. Only should that process die while it tells, or
    the telling fail, another does after ten minutes.
    """
    rows: QuerySet[Any] = QuerySet(Task, using=using).filter(state="errored", whole=None, notice_due__lte=Now())
    meant = rows if pks is None else rows.filter(pk__in=pks)
    sent = 0
    for pk in list(meant.order_by("notice_due").values_list("pk", flat=True)[:MOST]):
        if rows.filter(pk=pk).update(notice_due=Later(AGAIN)):
            sent += _send(using, pk)
    return sent


def mail_administrators(letter: DeadLetter) -> None:
    """The default: a mail to ``ADMINS`` and a record in the log."""
    logger.error(
        "tasks.dead_letter",
        extra={
            "task": letter.id, "queue": letter.queue, "action": letter.action, "data": _text(letter.data),
            "attempts": letter.attempts, "workers": letter.workers, "errors": letter.errors,
        },
    )  # fmt: skip
    lines = [
        f"{letter} ended without success after {letter.attempts} attempts.",
        f"Workers: {', '.join(letter.workers) or 'none'}",
        f"Data: {_text(letter.data)}",
        "Errors:",
        *(letter.errors or ["none is known"]),
        "It is kept until its retention is over; requeue it once the cause is mended.",
    ]
    mail_admins(" ".join(f"Dead letter: {letter}".split()), "\n\n".join(lines))


def letter_of(task: Any) -> DeadLetter:
    """What is known of a dead letter, bounded: of its latest stay in the queue, and of its parts if it was shared."""
    runs, acts = _latest(task)
    named = {worker_digits(run.worker): run.worker for run in runs}
    told = [(run.claimed, run.worker, run.reason or _unsaid(run)) for run in runs]
    # Worker processes make no runs; and what failed is known of them from the history alone.
    told += [line for line in acts if line[1] not in named]
    told.sort(key=lambda line: line[0])
    return DeadLetter(
        id=task.pk,
        queue=task.queue.name,
        action=task.action,
        data=task.data,
        attempts=len(told),
        workers=list(dict.fromkeys(worker for _, worker, _ in told)),
        errors=[f"{worker}: {bounded(error, ERROR_LENGTH)}" for _, worker, error in told],
    )


def _latest(task: Any) -> tuple[list[Any], list[tuple[Any, str, str]]]:
    """The claims of a task, or of the parts of a shared one, and the errors known of it, since it last waited."""
    runs: list[Any] = []
    errors: list[tuple[Any, str, str]] = []
    for each in task.parts.all() if task.worker_count > 1 else [task]:
        stay = each.runs.aggregate(stay=Max("version"))["stay"]
        runs.extend(each.runs.filter(version=stay).order_by("pk")[:ERRORS])
        errors.extend(_errors(each))
    return runs, errors


def _errors(task: Any) -> list[tuple[Any, str, str]]:
    """What its history and its report say: when, which worker, what."""
    beside = {"model_label": Task._meta.label_lower, "object_pk": str(task.pk)}
    using = task._state.db
    # A move bears the number after it, and the errors before it the number that it ended.
    acts = History.objects.using(using).filter(**beside, version__gte=task.state_version - 1).exclude(error="")
    found = [(act.at, act.worker, act.error) for act in acts.order_by("pk")[:ERRORS]]
    last = Report.objects.using(using).filter(**beside).exclude(error="").first()
    # The history of a move need not have the error that led to it.
    if last is not None and f"{last.error}: {last.message}" not in [error for _, _, error in found]:
        found.append((last.at, last.worker, f"{last.error}: {last.message}"))
    return found


def _unsaid(run: Any) -> str:
    return "its lease ran out" if run.ended is None else f"{run.outcome} without a word"


def _send(using: str, pk: Any) -> bool:
    rows: QuerySet[Any] = QuerySet(Task, using=using)
    task = rows.filter(pk=pk).select_related("queue").first()
    if task is None:
        return False
    try:
        import_string(load_settings().NOTIFY)(letter_of(task))
    except Exception:
        logger.exception("tasks.notice_failed", extra={"task": pk})
        return False
    rows.filter(pk=pk).update(notice_due=None)
    return True


def _text(data: Any) -> str:
    return bounded(json.dumps(data, ensure_ascii=False), DATA_LENGTH)
