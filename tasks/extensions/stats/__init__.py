"""Samples of queues in the framework's statistics."""
