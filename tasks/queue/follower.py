"""What follows when claims of tasks are ended by others."""

from collections.abc import Collection
from typing import Self

from django.db.models import Model, QuerySet

from stator.rows.followers import Follower
from tasks.queue import begun
from tasks.rows.tables import task_model


class TaskFollower(Follower):
    """A follower of moves of tasks alone."""

    @classmethod
    def bind(cls, model: type[Model]) -> Self | None:
        return cls(model) if model is task_model() else None


class OfTasks(TaskFollower):
    """The runs of claims that others end."""

    def taken(self, rows: QuerySet[Model], why: str) -> Collection[object]:
        return begun.taken(rows, why)
