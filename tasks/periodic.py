"""The public module of :func:`tasks.periodic`; the code is in ``periodic_registry``."""

from tasks.periodic_registry import Tick, periodic

__all__ = ["Tick", "periodic"]
