"""Statistics: how many objects of each model wait, by minute, and how many attempts end in which way, by hour."""

from stator.seams import Extension

EXTENSION = Extension(
    name="stats",
    connect=("stator.extensions.stats.readings.connect",),
    effects=("stator.extensions.stats.effect.CountedAttempts",),
    parts=("stator.extensions.stats.gathered.parts",),
    duties=("stator.extensions.stats.chores.SAMPLE",),
    upkeep=("stator.extensions.stats.chores.THIN", "stator.extensions.stats.chores.MERGE"),
    admin=("stator.extensions.stats.admin",),
)
