"""Events: what people and programs send to objects, also before the objects enter the state that takes it."""

from stator.seams import Extension

EXTENSION = Extension(
    name="events",
    followers=("stator.extensions.events.follower.KeptEvents",),
    kinds=(
        "stator.extensions.events.kinds.AWAITS_NOBODY",
        "stator.extensions.events.kinds.AWAITS_EVENT",
        "stator.extensions.events.kinds.TAKES_EVENT",
    ),
    commands=("stator.extensions.events.send",),
)
