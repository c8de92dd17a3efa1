"""Statistics: how many objects of each model wait, by minute, and how many attempts end in which way, by hour."""

from stator.seams import Extension

EXTENSION = Extension(
    name="stats",
    effects=("stator.db.counted_attempts.CountedAttempts",),
    duties=("stator.extensions.stats.duties.SAMPLE",),
    upkeep=("stator.extensions.stats.duties.THIN", "stator.extensions.stats.duties.MERGE"),
)
