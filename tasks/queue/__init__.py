"""Queues and their tasks: publish, claim, move, explain, settle and keep. ``queues`` is where to begin."""
