"""A durable queue of tasks, schedules, a backend for Django's Tasks framework and an HTTP API, built on ``stator``."""

from stator.exceptions import Fail, TryAgainLater

# From the module of the same name: if that were loaded later, it would take the place of the function.
from tasks.periodic import Tick, periodic
from tasks.registry import Context, action

__all__ = ["Context", "Fail", "Tick", "TryAgainLater", "action", "periodic"]
