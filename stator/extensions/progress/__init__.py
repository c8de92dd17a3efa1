"""Progress: running attempts say how far they are, which heartbeats write and pages show."""

from stator.seams import Extension

EXTENSION = Extension(name="progress", news=("stator.extensions.progress.models.NEWS_OF_ATTEMPTS",))
