"""Expenses that two people approve: a site of its own."""
