"""Batches: tasks that are done together. The end of the last one publishes an action."""

from stator.seams import Extension

EXTENSION = Extension(
    name="batches",
    connect=("tasks.extensions.batches.chores.connect",),
    followers=("tasks.extensions.batches.follower.OfBatches",),
)
