"""The history of what people, programs and events do to objects."""

from stator.seams import Extension

EXTENSION = Extension(name="history", followers=("stator.extensions.history.follower.HandHistory",))
