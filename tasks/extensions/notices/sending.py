"""The sending of notices: right after a task has ended without success, and in the passes of workers."""

import logging
from collections.abc import Iterator, Sequence
from contextvars import copy_context
from typing import Any

from django.apps import AppConfig, apps
from django.core import checks
from django.db.models import Model, QuerySet
from django.utils.module_loading import import_string

from stator.models import Now
from tasks.chores.passes import CHORES, FOLLOWS
from tasks.conf import load_settings, read_settings
from tasks.dead_letters import letter_of
from tasks.models import Task
from tasks.queue.follower import TaskFollower
from tasks.rows.clock import Later
from tasks.rows.tasks import DEAD

logger = logging.getLogger("tasks.dead_letters")

# Seconds until a notice is sent again after sending failed or the sending process died.
AGAIN = 600.0

# The most notices that one call sends; the next call sends the rest.
MAX_NOTICES = 100


class OfNotices(TaskFollower):
    """No second notice of dead letters that are dead again because their requeue was undone."""

    def went_back(self, rows: QuerySet[Model]) -> None:
        rows.filter(state="errored").update(notice_due=None)


def connect() -> None:
    """Send notices after moves and in passes, and check the setting."""
    FOLLOWS["errored"].append(lambda using, moved: send_notices(using, moved.pks()))
    CHORES.append(send_notices)
    checks.register(check_notify, "tasks")


def send_notices(using: str, pks: list[Any] | None = None) -> int:
    """Send the notices of dead letters that have none yet, up to 100, and of failed ticks; return how many were sent.

    ``pks``: consider only these tasks. A process reserves a notice in the row before it sends it, so that no other
    process sends it too. If it dies or sending fails, another process tries again after ten minutes.
    """
    rows: QuerySet[Task] = QuerySet(Task, using=using).filter(DEAD, notice_due__lte=Now())
    if pks is not None:
        return _send_due(rows.filter(pk__in=pks))
    return _send_due(rows) + sum(map(_send_due, _others(using)))


def _others(using: str) -> Iterator[QuerySet[Model]]:
    """Yield the rows of other models of the app that may have dead letters: those with a ``letter`` of their own."""
    for model in apps.get_app_config("tasks").get_models():
        if hasattr(model, "letter") and (dead := getattr(model, "DEAD", None)):
            yield QuerySet(model, using=using).filter(dead, notice_due__lte=Now())


def _send_due(due: QuerySet[Any]) -> int:
    sent = 0
    for pk in list(due.order_by("notice_due").values_list("pk", flat=True)[:MAX_NOTICES]):
        if due.filter(pk=pk).update(notice_due=Later(AGAIN)):
            sent += _send(QuerySet(due.model, using=due.db).filter(pk=pk))
    return sent


def _send(row: QuerySet[Any]) -> bool:
    dead = row.select_related("queue").first()
    if dead is None:
        return False
    try:
        copy_context().run(import_string(load_settings().NOTIFY), letter_of(dead))
    except BaseException:
        logger.exception("tasks.notice_failed", extra={dead._meta.model_name: dead.pk})
        return False
    row.update(notice_due=None)
    return True


def check_notify(app_configs: Sequence[AppConfig] | None = None, **kwargs: object) -> list[checks.CheckMessage]:
    """Return the error tasks.E002: ``NOTIFY`` is not callable."""
    path = read_settings()[0].NOTIFY
    try:
        callable_there = not isinstance(path, str) or callable(import_string(path))
    except ImportError:
        callable_there = False
    if callable_there:
        return []
    message = f"STATOR_TASKS setting: NOTIFY={path!r} is not the dotted path of a callable."
    hint = "Set NOTIFY to the dotted path of a function that takes a dead letter."
    return [checks.Error(message, hint=hint, id="tasks.E002")]
