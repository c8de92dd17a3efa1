"""Isolated processes: for objects that lost many leases, and for isolated actions. Data is JSON, never pickled.

``process`` is an isolated process as its worker sees it, ``child`` what each of them does around its work, and
``surroundings`` what it takes over from its worker. ``__main__`` and ``attempts`` serve
:mod:`stator.worker.crash_isolation`.
"""
