"""What a managed row is: columns and indexes, inserts and moves, pauses and waits, and what is kept of it.

``columns`` is where to begin. These modules use ``graph`` and Django's ORM, and no worker.
"""
