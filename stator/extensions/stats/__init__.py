"""Statistics: how many objects of each model wait, by minute, and how many attempts end in which way, by hour."""

from stator.seams import Extension

EXTENSION = Extension(
    name="stats",
    connect=("stator.extensions.stats.readings.connect",),
    effects=("stator.extensions.stats.effect.CountedAttempts",),
    parts=("stator.extensions.stats.gathered.parts",),
    duties=("stator.extensions.stats.duties.SAMPLE",),
    upkeep=("stator.extensions.stats.duties.THIN", "stator.extensions.stats.duties.MERGE"),
    admin=("stator.extensions.stats.admin",),
)
