"""A durable queue of tasks, schedules, a backend for Django's Tasks framework and an HTTP API, built on ``stator``."""

from stator.exceptions import Fail, TryAgainLater
from tasks.actions.registry import Context, action

# The submodule has the name of the function; loaded first, so that the name stays that of the function.
from tasks.periodic import Tick, periodic

__all__ = ["Context", "Fail", "Tick", "TryAgainLater", "action", "periodic"]
