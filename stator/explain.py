"""The name of what ``explain()`` returns."""

from stator.rows.problem import Reason

__all__ = ["Reason"]
