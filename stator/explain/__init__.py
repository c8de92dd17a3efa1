"""Reasons why an object is not moving: :func:`explain` for one object, :func:`explain_counts` for many."""

from stator.explain.counts import explain_counts
from stator.explain.order import explain
from stator.explain.reason import Reason

__all__ = ["Reason", "explain", "explain_counts"]
