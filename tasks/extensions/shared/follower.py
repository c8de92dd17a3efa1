"""Which tasks no undo moves back because of their parts."""

from collections.abc import Mapping
from typing import Any

from django.db.models import Model, QuerySet

from tasks.queue.follower import TaskFollower
from tasks.queue.task_parts import KIND


class OfShared(TaskFollower):
    """Canceled tasks that have lost parts stay: they would end without them."""

    def staying(self, rows: QuerySet[Model]) -> Mapping[object, str]:
        wholes: dict[object, Any] = KIND.parts.whole_of(rows.filter(state="canceled"))
        lacking = KIND.parts.lacking(rows, set(wholes.values()))
        return {pk: "has lost parts to its retention" for pk, whole in wholes.items() if whole in lacking}
