"""The edges by related objects, as graphs declare them. Independent of Django."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stator.exceptions import GraphError
from stator.graph.conditions import FollowedCondition

if TYPE_CHECKING:
    from stator.graph.states import PendingEdge, State


class RelatedEdges:
    """What a state declares of related objects."""

    if TYPE_CHECKING:

        def _pending(self, kind: str, condition: object) -> "PendingEdge": ...

    def when_all(self, relation: str, *, in_: Iterable["State | str"], empty: bool = False) -> "PendingEdge":
        """Move an object once all objects of a relation are in one of these states.

        ``order.when_all("lines", in_=["packed"]).to(ready)``: the move of the last line moves the order, in the same
        transaction. An object without related objects waits, unless ``empty``.
        """
        return self._pending("when_all", _awaited("when_all", relation, in_, every=True, empty=empty))

    def when_any(self, relation: str, *, in_: Iterable["State | str"]) -> "PendingEdge":
        """Move an object once one object of a relation is in one of these states, in the transaction of its move."""
        return self._pending("when_any", _awaited("when_any", relation, in_, every=False))


@dataclass(frozen=True, slots=True)
class AwaitedRelation(FollowedCondition):
    """The condition that all, or any, objects of a relation are in one of some states.

    ``empty``: whether all of no objects are enough.
    """

    relation: str
    in_: tuple[str, ...]
    every: bool
    empty: bool

    @property
    def kind(self) -> str:
        """The method that declares it."""
        return "when_all" if self.every else "when_any"

    def __str__(self) -> str:
        return f"{'all' if self.every else 'any'} of {self.relation} in {' or '.join(self.in_)}"

    def deconstruct(self) -> tuple[object, ...]:
        """Return what distinguishes two versions of it, as conditions of Django do."""
        return self.relation, sorted(self.in_), self.every, self.empty


def _awaited(kind: str, relation: object, in_: object, *, every: bool, empty: object = False) -> AwaitedRelation:
    where = f"{kind}({relation!r})"
    if not (isinstance(relation, str) and relation.isidentifier()):
        raise GraphError(f"{where}: takes the name of a relation of the model")
    states = list(in_) if isinstance(in_, list | tuple | set | frozenset) else []
    if not states or not all(isinstance(state, str) or hasattr(state, "edges") for state in states):
        raise GraphError(f"{where}: in_={in_!r} must be a list of states of the related model")
    if not isinstance(empty, bool):
        raise GraphError(f"{where}: empty={empty!r} must be True or False")
    return AwaitedRelation(relation, tuple(dict.fromkeys(map(str, states))), every, empty)
