"""Limits of actions over all workers: how many attempts start in a time, and how many run at once."""

from stator.seams import Extension

EXTENSION = Extension(name="throttles", connect=("tasks.extensions.throttles.claims.connect",))
