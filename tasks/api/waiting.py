"""Connections of requests: one that waits for tasks holds none."""

from django.db import connections


def give_connections_back() -> None:
    """Close the connections of this thread, or return them to their pools."""
    for connection in connections.all(initialized_only=True):
        # Only a test that runs in a transaction has one open here.
        if not connection.in_atomic_block:
            connection.close()
