"""Statistics: how many objects of each model wait, by minute."""

from stator.seams import Extension

EXTENSION = Extension(name="stats", duties=("stator.extensions.stats.duties.SAMPLE",))
