"""Conditions and triggers of edges that extensions bring. Independent of Django."""

from typing import TYPE_CHECKING, ClassVar, Self

if TYPE_CHECKING:
    from stator.graph.graphs import StateGraph
    from stator.graph.states import State


class FollowedCondition:
    """A condition of an edge that the moves of other objects fulfil: they move the object, without a worker of its own.

    Its text is what the history and drawings say of the edge. What it means for rows, ``stator.rows.edges`` knows.
    """

    # Marks conditions, as in Django.
    conditional: ClassVar[bool] = True


class Trigger:
    """What else moves objects along an edge, neither a handler, a timeout nor a condition; its text is as declared.

    ``target``: the state that it leads to; None if it only makes its objects ready.
    """

    target: "State | None"

    def place(self, where: str, graph: "type[StateGraph]") -> Self:
        """Return it as a graph has it, which may inherit its states; raise ``GraphError`` if it cannot be there."""
        raise NotImplementedError

    @property
    def lacking(self) -> str:
        """What is missing on an inherited state, and the remedy."""
        raise NotImplementedError

    @property
    def label(self) -> str:
        """What drawings write at its edge."""
        raise NotImplementedError

    @property
    def declared(self) -> list[object]:
        """What distinguishes two versions of it."""
        raise NotImplementedError
