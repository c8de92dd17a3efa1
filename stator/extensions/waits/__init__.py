"""Objects that wait for objects of other models before they are claimed."""

from stator.seams import Extension

EXTENSION = Extension(name="waits", followers=("stator.extensions.waits.follower.WaitFollower",))
