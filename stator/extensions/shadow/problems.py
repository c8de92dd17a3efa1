"""How explanations, the status and the overview tell that a model is in shadow."""

from collections.abc import Iterator

from stator.extensions.problems.causes import of_models
from stator.extensions.problems.facts import Facts
from stator.extensions.problems.kind import ProblemKind
from stator.extensions.problems.sentences import Said
from stator.extensions.problems.surveyed import Surveyed
from stator.extensions.shadow.options import in_shadow
from stator.rows.problem import WARNING, Problem
from stator.texts import listed

NO_OPTION = "Nothing to do. To have workers move them, start workers without --shadow."


def shadow(facts: Facts) -> Iterator[Said]:
    """Say that other code moves the object."""
    yield f"{facts.state} is in shadow: other code moves it, and workers only record what they would do.", {}


def _of_model(one: Surveyed) -> Iterator[Problem]:
    left = in_shadow(one.model) | one.crew.left
    states = [name for name in one.model.state_graph.states if name in left]
    # Without an object in them, there is nothing to do differently.
    if not any(one.depths.states[name].count for name in states):
        return
    by_option = bool(one.crew.left - in_shadow(one.model))
    whole = len(states) == len(one.model.state_graph.states)
    what = "workers run nothing" if whole else f"workers run nothing in {listed(states, 5)}"
    looks = "; no live worker looks on" if one.crew.known and not one.live else ""
    yield Problem(
        "",
        f"in shadow: {what}, and record what they would do{looks}",
        {"states": states},
        NO_OPTION if by_option else "",
        where=one.label,
        model=one.model._meta.label_lower,
        command=f"manage.py stator shadow {one.label}",
    )


SHADOW = ProblemKind.of_one(
    shadow,
    after="external",
    holds=lambda facts: facts.left and not facts.state.terminal,
    rows=lambda many: many.left,
    remedy="Nothing to do. To have workers move it, take its state out of shadow, or start workers without --shadow.",
    level=WARNING,
    rank=90,
    find=of_models(_of_model),
    covers=lambda one: one.crew.left,
)
