"""What tests ask about steps, and the steps of handlers that ``check_graph`` calls: with the rules of an attempt."""

from typing import Any

from django.db.models import Model, QuerySet

from stator.extensions.steps.attempt import STEPS, Steps
from stator.extensions.steps.models import steps_of
from stator.models import StatorModel, home_of, owner_of
from stator.querysets import HeldClaim
from stator.texts import JsonObject


def steps(row: StatorModel) -> JsonObject:
    """Return the results of the durable steps that are done in the present visit of the state, by name, in order."""
    rows: QuerySet[Model] = QuerySet(owner_of(type(row)), using=home_of(row))
    return {step.name: step.value for step in steps_of(rows, row.pk)}


class TriesSteps:
    """The steps of a claim that is only tried; its ``done`` has the results as JSON, and gets further ones."""

    __slots__ = ()

    def own_steps(self: Any) -> Steps:
        """Return the steps of the attempt."""
        steps = STEPS.of(self)
        if steps is None:
            steps = _TriedSteps(self, self.done)
            STEPS.note(self, steps)
        return steps


class _TriedSteps(Steps):
    def __init__(self, claim: HeldClaim, done: dict[str, str]) -> None:
        super().__init__(claim)
        self._done = done

    def _recorded(self, name: str, text: str) -> bool:
        return True
