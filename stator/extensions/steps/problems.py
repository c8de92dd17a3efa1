"""What ``explain()`` says of the steps of an object."""

from collections.abc import Iterator
from typing import Any

from django.db.models import QuerySet

from stator.explain.facts import Facts
from stator.explain.kinds import ProblemKind
from stator.explain.sentences import Said
from stator.extensions.steps.models import steps_of

# Steps are named up to this number.
MAX_STEPS = 50


def _done(facts: Facts) -> list[str]:
    """Return the names of the steps that are done in this visit of the object's state, in order."""
    if not (facts.automatic and facts.row["state_attempts"]):
        return []
    if "steps" not in facts.further:
        rows: QuerySet[Any] = QuerySet(facts.model, using=facts.using)
        facts.further["steps"] = list(steps_of(rows, facts.pk).values_list("name", flat=True)[:MAX_STEPS])
    found: list[str] = facts.further["steps"]
    return found


def steps_done(facts: Facts) -> Iterator[Said]:
    """Name the steps that a further attempt does not repeat."""
    *first, last = _done(facts)
    named = f"{', '.join(first)} and {last}" if first else last
    s = "s" if first else ""
    yield f"Its attempts have done the step{s} {named}; a further one does not repeat them.", {"steps": _done(facts)}


STEPS_DONE = ProblemKind.of_one(
    steps_done,
    holds=lambda facts: bool(_done(facts)),
    remedy="Nothing to do. To have them repeated, move the object to its state by hand.",
)
