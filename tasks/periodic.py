"""The public module of :func:`tasks.periodic`; the code is in ``schedules/periodic.py``."""

from tasks.extensions.schedules.periodic import Tick, periodic

__all__ = ["Tick", "periodic"]
