"""Mutants of the protocol: faults made on purpose, one at a time, of which the tests have to notice each.

``bin/mutants`` tries them. They are data, in ``rows``, ``statements``, ``batches``, ``process`` and ``queue``.
"""
