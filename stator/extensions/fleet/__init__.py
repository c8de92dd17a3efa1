"""The fleet: what each worker process shows of itself, the versions that processes run, and how they ended."""

from stator.seams import Extension

EXTENSION = Extension(
    name="fleet",
    connect=("stator.extensions.fleet.readings.connect",),
    parts=("stator.extensions.fleet.presence.parts",),
    commands=("stator.extensions.fleet.workers",),
)
