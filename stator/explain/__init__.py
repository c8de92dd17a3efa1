"""Reasons why an object is not moving: :func:`explain` for one object, :func:`explain_counts` for many.

The story begins in ``reasons``: a table with one entry for each reason. ``facts`` are about one object and ``many`` is
about the rows of a queryset; ``sentences`` are the texts.
"""

from stator.explain.reasons import Reason, explain, explain_counts

__all__ = ["Reason", "explain", "explain_counts"]
