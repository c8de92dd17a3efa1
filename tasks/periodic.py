"""The module of :func:`tasks.periodic`, for ``from tasks.periodic import periodic``; it is in ``periodic_registry``."""

from tasks.periodic_registry import Tick, periodic

__all__ = ["Tick", "periodic"]
