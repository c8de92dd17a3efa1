"""Problems: what is wrong with one object or with many. The story begins in ``kinds``, the table of all kinds.

``kind`` is one entry of it. ``facts`` are about one object and ``many`` about the rows of a queryset; ``sentences`` are
the texts of one object's reasons. ``survey`` reads the facts about all models of a database (``surveyed``), and
``causes`` finds the problems in it. ``reasons`` answer for objects; the overview, ``doctor``, ``status`` and metrics
show ``problems_in`` a survey.
"""

from stator.seams import Extension

EXTENSION = Extension(
    name="problems",
    connect=("stator.extensions.problems.verbs.connect",),
    commands=(
        "stator.extensions.problems.commands.status",
        "stator.extensions.problems.commands.explain",
        "stator.extensions.problems.commands.doctor",
    ),
)
