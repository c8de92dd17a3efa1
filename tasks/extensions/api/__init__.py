"""The HTTP API: what programs get with a token. The endpoints are in ``tasks/api``."""

from stator.seams import Extension

EXTENSION = Extension(
    name="api",
    admin=("tasks.extensions.api.admin",),
)
