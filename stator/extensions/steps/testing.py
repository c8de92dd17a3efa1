"""What tests ask about steps."""

from typing import Any

from django.db.models import QuerySet

from stator.extensions.steps.models import steps_of
from stator.models import StatorModel, home_of, owner_of


def steps(row: StatorModel) -> dict[str, Any]:
    """Return the results of the durable steps that are done in the present visit of the state, by name, in order."""
    rows: QuerySet[Any] = QuerySet(owner_of(type(row)), using=home_of(row))
    return {step.name: step.value for step in steps_of(rows, row.pk)}
