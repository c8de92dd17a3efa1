"""Querysets of tasks, queues and runs for modules below :mod:`tasks.models`.

Querysets of tasks and queues have rows of type Any: type checkers know primary keys and relations only of models.
"""

from functools import cache
from typing import Any, TypeVar, cast

from django.apps import apps
from django.db import connections
from django.db.models import Model, QuerySet

from tasks.rows.runs import Run
from tasks.rows.tasks import TaskRow

RowT = TypeVar("RowT", bound=Model)


def task_model() -> type[TaskRow]:
    """Return the model of tasks."""
    return cast("type[TaskRow]", _model("Task"))


def task_rows(using: str | None = None) -> QuerySet[Any]:
    """Return the tasks in a database."""
    return QuerySet(task_model(), using=using)


def queue_rows(using: str | None = None) -> QuerySet[Any]:
    """Return the queues in a database."""
    return QuerySet(_model("Queue"), using=using)


def run_rows(using: str | None = None) -> QuerySet[Run]:
    """Return the runs in a database."""
    return QuerySet(Run, using=using)


def locked(rows: QuerySet[RowT]) -> QuerySet[RowT]:
    """Return rows that are locked when they are read, until the transaction ends; inserts may still refer to them."""
    return rows.select_for_update(no_key=connections[rows.db].features.has_select_for_no_key_update)


@cache
def _model(name: str) -> type[Any]:
    return apps.get_model("tasks", name)
