"""Querysets of tasks, queues and runs for modules below :mod:`tasks.models`."""

from functools import cache
from typing import TYPE_CHECKING, TypeAlias, TypeVar, cast

from django.apps import apps
from django.db import connections
from django.db.models import Model, QuerySet

from tasks.rows.runs import Run

if TYPE_CHECKING:
    from tasks.models import Queue, Task

RowT = TypeVar("RowT", bound=Model)

Rows: TypeAlias = QuerySet["Task"]


def task_model() -> "type[Task]":
    """Return the model of tasks."""
    return cast("type[Task]", _model("Task"))


def task_rows(using: str | None = None) -> "QuerySet[Task]":
    """Return the tasks in a database."""
    return QuerySet(task_model(), using=using)


def queue_rows(using: str | None = None) -> "QuerySet[Queue]":
    """Return the queues in a database."""
    return QuerySet(cast("type[Queue]", _model("Queue")), using=using)


def run_rows(using: str | None = None) -> QuerySet[Run]:
    """Return the runs in a database."""
    return QuerySet(Run, using=using)


def locked(rows: QuerySet[RowT]) -> QuerySet[RowT]:
    """Return rows that are locked when they are read, until the transaction ends; inserts may still refer to them."""
    return rows.select_for_update(no_key=connections[rows.db].features.has_select_for_no_key_update)


@cache
def _model(name: str) -> type[Model]:
    return apps.get_model("tasks", name)
