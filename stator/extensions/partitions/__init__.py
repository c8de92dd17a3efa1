"""Partitions of the framework's own tables by time."""

from stator.seams import Extension

EXTENSION = Extension(name="partitions", duties=("stator.extensions.partitions.duties.MAINTAIN",))
