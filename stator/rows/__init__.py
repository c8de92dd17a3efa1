"""What a managed row is: columns and indexes, moves, pauses and waits, and what is kept of it.

``columns`` is where to begin. These modules use ``graph`` and Django's ORM, and no worker.
"""
