"""Refusals: rows that the database refuses to change are left alone for a while, so that they hold up no others."""

from stator.seams import Extension

EXTENSION = Extension(name="refusals", conditions=("stator.extensions.refusals.condition.NotRefused",))
