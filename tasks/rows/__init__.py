"""The tables of the queue, the lowest floor of ``tasks``: columns, indexes, and the properties of a single row.

The models of tasks and queues have methods that need other modules, so these tables are abstract here, and
:mod:`tasks.models` makes them models. The other models name their app, because Django's Tasks framework may import them
while the app is missing in INSTALLED_APPS; a system check then says so.
"""
