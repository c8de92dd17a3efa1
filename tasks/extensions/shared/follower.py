"""Which tasks no undo moves back because of their parts."""

from collections.abc import Mapping
from typing import Any, Self

from django.db.models import Model, QuerySet

from stator.rows.followers import Follower
from tasks.queue.task_parts import KIND
from tasks.rows.tables import task_model


class OfShared(Follower):
    """Canceled tasks that have lost parts stay: they would end without them."""

    @classmethod
    def bind(cls, model: type[Model]) -> Self | None:
        return cls(model) if model is task_model() else None

    def staying(self, rows: QuerySet[Model]) -> Mapping[object, str]:
        wholes: dict[object, Any] = KIND.parts.whole_of(rows.filter(state="canceled"))
        lacking = KIND.parts.lacking(rows, set(wholes.values()))
        return {pk: "has lost parts to its retention" for pk, whole in wholes.items() if whole in lacking}
