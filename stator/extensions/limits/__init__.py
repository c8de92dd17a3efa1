"""Limits: at most so many objects of a state are claimed at once, over all workers (``State(concurrency=...)``)."""

from stator.seams import Extension

EXTENSION = Extension(
    name="limits",
    conditions=("stator.extensions.limits.condition.LimitedStates",),
    kinds=("stator.extensions.limits.problems.AT_LIMIT", "stator.extensions.limits.problems.FULL_LIMIT"),
)
