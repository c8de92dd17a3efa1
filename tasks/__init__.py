"""A durable queue of tasks, schedules, a backend for Django's Tasks framework and an HTTP API, built on ``stator``."""

from stator.exceptions import Fail, TryAgainLater
from tasks.registry import Context, action

__all__ = ["Context", "Fail", "TryAgainLater", "action"]
