"""Reports and the history: the latest error or reason of each object, what happened to it, and what attempts log."""

from stator.seams import Extension

EXTENSION = Extension(
    name="reports",
    connect=("stator.extensions.reports.readings.connect",),
    followers=("stator.extensions.reports.follower.KeptActs",),
    effects=("stator.extensions.reports.effects.KeptHistory", "stator.extensions.reports.effects.KeptReports"),
    parts=("stator.extensions.reports.parts.beside",),
    admin=("stator.extensions.reports.admin",),
    kinds=("stator.extensions.reports.problems.LAST_SAID",),
    commands=("stator.extensions.reports.errors",),
)
