"""Benchmarks: each module prints one table; see README.rst for the last numbers."""
