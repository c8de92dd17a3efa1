"""The graph of a model as a picture, with the row's current state and the moves that led there."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stator.admin.access import Pages
from stator.graph import StateGraph
from stator.graph.drawing import described, joined
from stator.graph.layout import MAX_STATES, Box, DrawnEdge, Picture, lay_out
from stator.models import StatorModel
from stator.rows.meta import model_named
from stator.rows.problem import Numbers, Problem
from stator.rows.state_column import state_name
from stator.texts import either


@dataclass(frozen=True, slots=True)
class ShownShape:
    """A box or a line, with its style."""

    at: Box | DrawnEdge
    classes: str
    words: str = ""
    gone: bool = False


@dataclass(frozen=True, slots=True)
class GraphPicture:
    """Everything that the template draws."""

    picture: Picture
    boxes: list[ShownShape]
    lines: list[ShownShape]


def picture_of(row: StatorModel, moves: list[tuple[str, str]]) -> GraphPicture | None:
    """Return the picture for a row that made these moves; None if the graph is too large."""
    graph = row.state_graph
    if len(graph.states) > MAX_STATES:
        return None
    kinds = joined(map(described, graph.edges))
    # Moves by hand may go where no edge leads, and come from states that no longer exist.
    by_hand = {move: ("hand", "by hand") for move in moves if move not in kinds}
    ways = kinds | by_hand
    initial = graph.initial_state.name
    names = dict.fromkeys([initial, *graph.states, *(end for move in by_hand for end in move), state_name(row)])
    picture = lay_out(tuple(names), tuple((*ends, words) for ends, (_, words) in ways.items()))
    been = {end for move in moves for end in move}
    here = state_name(row)
    boxes = [
        ShownShape(box, _box_classes(graph, box.name, here, been), "you are here" if box.name == here else "")
        for box in picture.boxes
    ]
    lines = [_line(line, ways, moves) for line in picture.lines]
    # Lines drawn last are on top.
    return GraphPicture(picture, boxes, sorted(lines, key=lambda line: line.gone))


@dataclass(frozen=True, slots=True)
class CircleLink:
    """An object of a circle, with its address if the user may see it, and what it waits for the next one to be."""

    name: str
    url: str
    until: str
    here: bool


def circle_of(reasons: Iterable[Problem], pages: Pages) -> list[CircleLink]:
    """Return the circle of waiting that the object of these reasons is in, the object first; empty if there is none."""
    waits: list[Numbers] = next((reason.numbers["waits"] for reason in reasons if reason.code == "circle"), [])
    return [
        CircleLink(
            f"{one['model']} {one['pk']}", pages.page_of(model_named(one["model"]), one["pk"]) if number else "",
            either(one["until"]), not number,
        )
        for number, one in enumerate(waits)
    ]  # fmt: skip


def _box_classes(graph: type[StateGraph], name: str, here: str, been: set[str]) -> str:
    state = graph.states.get(name)
    marks = [f"stator-{state.kind if state else 'unknown'}"]
    marks += ["stator-been"] * (name in been) + ["stator-here"] * (name == here)
    return " ".join(marks)


def _line(line: DrawnEdge, ways: Mapping[tuple[str, str], tuple[str, str]], moves: list[tuple[str, str]]) -> ShownShape:
    ends = (line.source, line.target)
    (kind, words), gone = ways[ends], ends in moves
    return ShownShape(line, f"stator-{kind}{' stator-way' if gone else ''}", words, gone)
