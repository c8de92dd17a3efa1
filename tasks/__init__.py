"""A durable queue of tasks, schedules, a backend for Django's Tasks framework and an HTTP API, built on ``stator``."""

from stator.exceptions import Fail, TryAgainLater

# Imported first: if the submodule ``tasks.periodic`` were loaded later, it would replace the function of that name.
from tasks.periodic import Tick, periodic
from tasks.registry import Context, action

__all__ = ["Context", "Fail", "Tick", "TryAgainLater", "action", "periodic"]
