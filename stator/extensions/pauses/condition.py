"""What pauses leave of the rows of one model."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import BigIntegerField, F, Func, Model, Q, QuerySet

from stator.db.conditions import StoredCondition
from stator.extensions.pauses.models import MAX_PAUSES, Pause
from stator.graph.states import State
from stator.rows.state_column import state_field

# What a poll adds to each key before it sums them, so that the sum also has their number: the keys of so few pauses
# amount to less. Keys rise, so two sets of pauses of which the later one followed the other have the same number and
# the same sum of keys only if they are the same.
STEP = 2**40


@dataclass(frozen=True, slots=True)
class Pauses:
    """The pauses of one model."""

    everything: bool = False
    states: frozenset[str] = frozenset()
    partial: tuple[Pause, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.everything or self.states or self.partial)

    @classmethod
    def of(cls, label: str, active: Iterable[Pause]) -> "Pauses":
        """Return the pauses of a model among all active ones of its database."""
        own = [pause for pause in active if pause.model_label == label]
        whole = {pause.state for pause in own if not pause.where}
        return cls(
            everything="" in whole,
            states=frozenset(whole - {""}),
            partial=tuple(pause for pause in own if pause.where),
        )

    def running(self, states: Iterable[State]) -> list[State]:
        """Return the given states that are not paused as a whole."""
        return [] if self.everything else [state for state in states if state.name not in self.states]

    def held(self, model: type[Model], states: Iterable[State]) -> Q:
        """Return a condition for rows that a pause with ``where`` holds; an empty one if there are no such pauses."""
        return Q(*self._conditions(model, states), _connector=Q.OR)

    def _conditions(self, model: type[Model], states: Iterable[State]) -> Iterator[Q]:
        names = sorted(state.name for state in states)
        for pause in self.partial:
            if pause.state in ("", *names):
                within = [pause.state] if pause.state else names
                yield Q(**state_field(model).among(within)) & pause.condition(model)


class Paused(StoredCondition):
    """Rows that a pause holds are not claimed, and wait for its end with their deadlines."""

    @classmethod
    def asked(cls, alias: str) -> QuerySet[Pause, object]:
        # Django must not take the function for an aggregate, or it would group the rows.
        number = Func(F("pk") + STEP, function="SUM", output_field=BigIntegerField())
        return Pause.objects.using(alias).active().values(number=number)

    @classmethod
    def sign_of(cls, read: Sequence[Any]) -> int:
        return sum(pause.pk + STEP for pause in read)

    @classmethod
    def in_force(cls, alias: str, label: str | None = None) -> QuerySet[Pause]:
        active = Pause.objects.using(alias).active()
        return active.order_by("pk")[:MAX_PAUSES] if label is None else active.filter(model_label=label)

    @classmethod
    def said(cls, label: str, read: Sequence[Any]) -> Pauses:
        return Pauses.of(label, read)
