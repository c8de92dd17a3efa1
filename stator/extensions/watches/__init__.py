"""Edges by related objects: ``when_all`` and ``when_any``."""

from stator.seams import Extension

EXTENSION = Extension(
    name="watches",
    followers=("stator.extensions.watches.follower.Entered", "stator.extensions.watches.follower.Related"),
)
