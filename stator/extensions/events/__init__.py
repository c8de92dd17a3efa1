"""Events: what people and programs send to objects, also before the objects enter the state that takes it."""

from stator.seams import Extension

EXTENSION = Extension(
    name="events",
    connect=("stator.extensions.events.readings.connect",),
    brought=("stator.extensions.events.claims.bring_events",),
    followers=("stator.extensions.events.follower.KeptEvents",),
    kinds=(
        "stator.extensions.events.problems.AWAITS_NOBODY",
        "stator.extensions.events.problems.AWAITS_EVENT",
        "stator.extensions.events.problems.TAKES_EVENT",
    ),
    admin=("stator.extensions.events.admin.pages",),
    counters=("stator.extensions.events.metrics.REFUSED",),
    gauges=("stator.extensions.events.metrics.AWAITING", "stator.extensions.events.metrics.SENT"),
    urls=("stator.extensions.events.answering.urlpatterns",),
    commands=("stator.extensions.events.send",),
)
