"""The tables of the queue, below all that is done with them: columns, indexes, and what a row says of itself.

The models of tasks and queues have methods that need other modules, so these tables are abstract here, and
:mod:`tasks.models` makes them models.
"""
