"""What pauses leave of the rows of one model."""

from collections.abc import Sequence
from typing import Any

from django.db.models import BigIntegerField, Func, Q, QuerySet

from stator.db.conditions import CLAIM, TIME_OUT, Condition, StoredCondition
from stator.graph import State
from stator.rows.pauses import MAX_PAUSES, Pause, Pauses

# What a poll asks about pauses: their number and the sum of their ids.
ASKED = ("COUNT", "SUM")


class Paused(StoredCondition):
    """Rows that a pause holds are not claimed, and wait for its end with their deadlines."""

    numbers = len(ASKED)

    def __init__(self, store: Any, earlier: Sequence[Condition]) -> None:
        super().__init__(store, earlier)
        self._pauses = Pauses()
        self._rows: Q | None = None

    @classmethod
    def asked(cls, alias: str) -> list[QuerySet[Any, Any]]:
        active = Pause.objects.using(alias).active()
        # Django must not take the function for an aggregate, or it would group the rows.
        numbers = (Func("pk", function=function, output_field=BigIntegerField()) for function in ASKED)
        return [active.values(number=number) for number in numbers]

    @classmethod
    def in_force(cls, alias: str, label: str | None = None) -> QuerySet[Any]:
        active = Pause.objects.using(alias).active()
        return active.order_by("pk")[:MAX_PAUSES] if label is None else active.filter(model_label=label)

    def take(self, read: Sequence[Any]) -> bool:
        before, self._pauses = self._pauses, Pauses.of(self._store.label, read)
        self.signs = len(read), sum(pause.pk for pause in read)
        if before == self._pauses:
            return False
        self.is_silent = self._pauses == Pauses()
        held = self._pauses.held(self._store.model, self._store.graph.automatic_states)
        self._rows = ~held if held else None
        return True

    def states(self, wanted: list[State]) -> list[State]:
        return self._pauses.running(wanted)

    def rows(self, deed: str) -> Q | None:
        return self._rows if deed in (CLAIM, TIME_OUT) else None
