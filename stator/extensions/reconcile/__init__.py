"""Reconcile on change: an object whose watched fields (``reconcile_on``) change is attempted again."""

from stator.seams import Extension

EXTENSION = Extension(name="reconcile")
