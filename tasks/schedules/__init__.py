"""Schedules: what is published or called at which moments. ``schedules`` is where to begin, ``ticking`` does it."""
