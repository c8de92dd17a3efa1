"""The states of a model as one bar."""

from dataclasses import dataclass

from stator.survey.numbers import Depths, InState
from stator.texts import count_text

# The width of a bar, and the least that shows that objects are in a state, however many are in others.
BAR, SLIVER = 200.0, 5.0


@dataclass(frozen=True, slots=True)
class Segment:
    """A state in the bar of its model, with the objects in it; ``css`` has its classes."""

    name: str
    count: str
    css: str
    x: float
    width: float


def state_bar(depths: Depths) -> list[Segment]:
    """Return the states that have objects, in the order of the graph, as parts of one bar."""
    filled = [one for one in depths.states.values() if one.count]
    total = sum(one.count for one in filled)
    free = BAR - SLIVER * len(filled)
    segments, x = [], 0.0
    for one in filled:
        width = SLIVER + free * one.count / total
        segments.append(
            Segment(one.name, count_text(one.count, one.cut), _segment(one), round(x, 1), round(width - 1, 1))
        )
        x += width
    return segments


def _segment(one: InState) -> str:
    if one.state is None or one.stuck or one.quarantined:
        return "late"
    return one.state.kind
