"""A durable queue of tasks, schedules, a backend for Django's Tasks framework and an HTTP API, built on ``stator``."""

from stator.exceptions import Fail, TryAgainLater
from tasks.actions.registry import Context, action
from tasks.failures import Cancel, Release

# Imported here, because a later first import of this submodule would replace the function of the same name.
from tasks.periodic import Tick, periodic  # tasks.extensions.schedules

__all__ = [
    "Cancel",
    "Context",
    "Fail",
    "Release",
    "Tick",  # tasks.extensions.schedules
    "TryAgainLater",
    "action",
    "periodic",  # tasks.extensions.schedules
]
