"""What ``explain()`` says of the steps of an object."""

from collections.abc import Iterator

from django.db.models import Model, QuerySet

from stator.extensions.problems.facts import Fact, Facts
from stator.extensions.problems.kind import ProblemKind
from stator.extensions.problems.sentences import Said
from stator.extensions.steps.models import steps_of

# Steps are named up to this number.
MAX_STEPS = 50


class DoneSteps(Fact[list[str]]):
    """The names of the steps that are done in this visit of an object's state, in order."""

    def known(self, facts: Facts) -> list[str]:
        if not (facts.automatic and facts.row["state_attempts"]):
            return []
        rows: QuerySet[Model] = QuerySet(self.model, using=self.using)
        return list(steps_of(rows, facts.pk).values_list("name", flat=True)[:MAX_STEPS])


def steps_done(facts: Facts) -> Iterator[Said]:
    """Name the steps that a further attempt does not repeat."""
    steps = facts.of(DoneSteps)
    *first, last = steps
    named = f"{', '.join(first)} and {last}" if first else last
    s = "s" if first else ""
    yield f"Its attempts have done the step{s} {named}; a further one does not repeat them.", {"steps": steps}


STEPS_DONE = ProblemKind.of_one(
    steps_done,
    fact=DoneSteps,
    holds=lambda facts: bool(facts.of(DoneSteps)),
    remedy="Nothing to do. To have them repeated, move the object to its state by hand.",
)
