"""Conditions of edges that extensions bring, in place of a ``Q``. Independent of Django."""

from typing import ClassVar


class FollowedCondition:
    """A condition of an edge that the moves of other objects fulfil: they move the object, without a worker of its own.

    Its text is what the history and drawings say of the edge. What it means for rows, ``stator.rows.edges`` knows.
    """

    # Marks conditions, as in Django.
    conditional: ClassVar[bool] = True
