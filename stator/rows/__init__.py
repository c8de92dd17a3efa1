"""Managed rows: columns and indexes, moves, pauses and waits, and stored reports and statistics.

``columns`` is where to begin. These modules use ``graph`` and Django's ORM, and no worker.
"""
