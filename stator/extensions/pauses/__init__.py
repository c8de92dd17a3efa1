"""Pauses: workers leave objects alone for a while because people want it."""

from stator.seams import Extension

EXTENSION = Extension(
    name="pauses",
    conditions=("stator.extensions.pauses.condition.Paused",),
    kinds=("stator.extensions.pauses.problems.PAUSED",),
    admin=("stator.extensions.pauses.admin",),
    commands=("stator.extensions.pauses.pause", "stator.extensions.pauses.resume"),
)
