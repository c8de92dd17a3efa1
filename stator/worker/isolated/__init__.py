"""Isolated processes: for objects that lost many leases, and for isolated actions. Data is JSON, never pickled.

``process`` is an isolated process as its worker sees it. ``child`` has what each such process does around its work.
``surroundings`` has what a process takes over from its worker. ``__main__`` and ``attempts`` serve
:mod:`stator.worker.crash_isolation`.
"""
