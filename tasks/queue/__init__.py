"""Queues and their tasks: publish, claim, consume, cancel, explain and prune. The story begins in ``queues``."""
