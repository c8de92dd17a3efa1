"""Problems: what is wrong with one object or with many. The story begins in ``kinds``, the table of all kinds.

``facts`` are about one object and ``many`` about the rows of a queryset; ``sentences`` are the texts of one object's
reasons. ``survey`` has the facts about all models of a database, and ``causes`` finds the problems in it.
:func:`explain` and :func:`explain_counts` answer for objects; the overview, ``doctor``, ``status`` and metrics show
``problems_in`` a survey.
"""

from stator.explain.estimates import LATELY, Estimate, estimate
from stator.explain.problem import Problem
from stator.explain.reasons import explain, explain_counts
from stator.explain.starving import InLine, Starving, line_ends, starving

# The documented name of a problem of one object.
Reason = Problem

__all__ = [
    "LATELY", "Estimate", "InLine", "Problem", "Reason", "Starving", "estimate", "explain", "explain_counts",
    "line_ends", "starving",
]  # fmt: skip
