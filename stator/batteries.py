"""The one table of extensions that are on. Their order is the order in which they act."""

from functools import cache
from importlib import import_module

from stator.seams import Extension

EXTENSIONS = (
    "stator.extensions.tracing",
)  # fmt: skip


@cache
def extensions() -> tuple[Extension, ...]:
    """Return what each extension adds."""
    return tuple(import_module(name).EXTENSION for name in EXTENSIONS)
