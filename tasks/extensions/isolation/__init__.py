"""Isolated actions: each runs in a process of its own, which ends with its attempt and can be killed."""
