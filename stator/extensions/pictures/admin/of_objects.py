"""The graph of a model as a picture, with the row's current state and the moves that led there."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from django.contrib.admin import ModelAdmin
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from stator.admin import detail
from stator.admin.detail import Moves
from stator.extensions.pictures.drawing import described, joined
from stator.extensions.pictures.layout import MAX_STATES, Box, DrawnEdge, Picture, lay_out
from stator.graph import StateGraph
from stator.models import StatorModel
from stator.rows.problem import Problem
from stator.rows.state_column import state_name


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


def _box_classes(graph: type[StateGraph], name: str, here: str, been: set[str]) -> str:
    state = graph.states.get(name)
    marks = [f"stator-{state.kind if state else 'unknown'}"]
    marks += ["stator-been"] * (name in been) + ["stator-here"] * (name == here)
    return " ".join(marks)


def _line(line: DrawnEdge, ways: Mapping[tuple[str, str], tuple[str, str]], moves: list[tuple[str, str]]) -> ShownShape:
    ends = (line.source, line.target)
    (kind, words), gone = ways[ends], ends in moves
    return ShownShape(line, f"stator-{kind}{' stator-way' if gone else ''}", words, gone)


def drawn(
    model_admin: ModelAdmin, request: HttpRequest, row: StatorModel, reasons: list[Problem], moves: Moves
) -> Iterator[SafeString]:
    """Yield the picture for the page of the row."""
    values = {"drawn": picture_of(row, moves), "here": state_name(row)}
    yield render_to_string("stator/admin/graph.svg", values)


detail.DRAWN.append(drawn)
