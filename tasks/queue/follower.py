"""What follows when claims of tasks are ended by others."""

from collections.abc import Collection
from typing import Self

from django.db.models import Model, QuerySet

from stator.rows.followers import Follower
from tasks.queue import begun
from tasks.rows.tables import task_model


class OfTasks(Follower):
    """The runs of claims that others end."""

    @classmethod
    def bind(cls, model: type[Model]) -> Self | None:
        return cls(model) if model is task_model() else None

    def taken(self, rows: QuerySet[Model], why: str) -> Collection[object]:
        return begun.taken(rows, why)
