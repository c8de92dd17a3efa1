"""The watchdog of a worker: ends a process whose event loop hangs, stores where, and writes the liveness file."""

from stator.seams import Extension

EXTENSION = Extension(
    name="watchdog",
    parts=("stator.extensions.watchdog.watchdog.parts",),
    arguments=("stator.extensions.watchdog.arguments",),
)
