"""Events that were sent before their objects entered the state that takes them."""

from stator.seams import Extension

EXTENSION = Extension(name="events", followers=("stator.extensions.events.follower.KeptEvents",))
