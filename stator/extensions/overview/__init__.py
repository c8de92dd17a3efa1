"""The overview: the page of the admin with all problems, errors, workers and models, and their number in its menu."""

from stator.seams import Extension

EXTENSION = Extension(
    name="overview",
    admin=("stator.extensions.overview.admin", "stator.extensions.overview.changes"),
)
