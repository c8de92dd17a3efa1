"""Isolated processes: for objects that lost many leases, and for isolated actions. Data is JSON, never pickled.

``process`` is an isolated process as its worker sees it. ``child`` has what each such process does around its work.
``surroundings`` has what a process takes over from its worker. ``crashes`` has the processes of a worker for objects
that lost many leases; in these, ``__main__`` and ``attempts`` serve it.
"""

from stator.seams import Extension

EXTENSION = Extension(name="isolation", parts=("stator.extensions.isolation.crashes.parts",))
