"""The choice of functions that call handlers: with spans or without."""

from importlib import import_module

from stator.conf import Settings
from stator.worker.executor import PLAIN, Calls


def calls_of(settings: Settings) -> Calls:
    """Return the functions with which a worker with these settings calls handlers."""
    # By name, because it needs a package that a project may not have.
    return import_module("stator.worker.tracing").traced() if settings.TRACING else PLAIN
