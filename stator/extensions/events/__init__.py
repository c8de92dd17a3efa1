"""Events: what people and programs send to objects, also before the objects enter the state that takes it."""

from stator.seams import Extension

EXTENSION = Extension(
    name="events",
    connect=("stator.extensions.events.readings.connect",),
    brought=("stator.extensions.events.claims.bring_events",),
    followers=("stator.extensions.events.follower.KeptEvents",),
    kinds=(
        "stator.extensions.events.kinds.AWAITS_NOBODY",
        "stator.extensions.events.kinds.AWAITS_EVENT",
        "stator.extensions.events.kinds.TAKES_EVENT",
    ),
    admin=("stator.extensions.events.admin.pages",),
    counters=("stator.extensions.events.figures.REFUSED",),
    gauges=("stator.extensions.events.figures.AWAITING", "stator.extensions.events.figures.SENT"),
    urls=("stator.extensions.events.answering.urlpatterns",),
    commands=("stator.extensions.events.send",),
)
