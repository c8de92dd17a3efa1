"""Schedules: tasks and calls at planned times. Begin with ``schedules``; ``ticking`` fires the ticks."""
