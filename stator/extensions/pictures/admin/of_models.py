"""The graph of a model as boxes and lines with numbers in them."""

from collections import defaultdict
from dataclasses import dataclass

from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from stator.admin import charts
from stator.admin.access import Pages
from stator.extensions.pictures.drawing import kind_of
from stator.extensions.pictures.layout import MAX_STATES, Box, DrawnEdge, Picture, Size, lay_out
from stator.graph import State
from stator.graph.durations import span
from stator.models import StatorModel
from stator.rows.state_column import state_field
from stator.survey.flow import Flow
from stator.survey.numbers import Depths, InState
from stator.texts import count_text

SIZE = Size(height=64.0, narrowest=148.0, widest=260.0)
# Room for this text is reserved at each line, whatever its rate, so that boxes keep their places.
WIDEST_RATE = "99,999/h"


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A box with its texts; ``css`` has its classes."""

    box: Box
    count: str
    summary: str
    failures: str
    title: str
    url: str
    css: str


@dataclass(frozen=True, slots=True)
class Arrow:
    """A line with its label."""

    line: DrawnEdge
    label: str
    title: str
    css: str


@dataclass(frozen=True, slots=True)
class LivePicture:
    """The whole picture; ``drawing`` is None if the graph is too large."""

    drawing: Picture | None
    nodes: list[GraphNode]
    arrows: list[Arrow]


def picture_of(model: type[StatorModel], depths: Depths, flow: Flow, pages: Pages) -> LivePicture:
    """Return the graph with the number and age of objects in each state, and the moves of the last hour."""
    graph = model.state_graph
    kinds: dict[tuple[str, str], list[str]] = defaultdict(list)
    for edge in graph.edges:
        kinds[edge.state.name, edge.other.name].append(kind_of(edge))
    if len(graph.states) > MAX_STATES:
        return LivePicture(None, [], [])
    names = dict.fromkeys([graph.initial_state.name, *graph.states])
    drawing = lay_out(tuple(names), tuple((*ends, WIDEST_RATE) for ends in kinds), SIZE)
    url = {name: pages.list_of(model, **state_field(model).asked([name])) for name in graph.states}
    nodes = [_node(box, graph.states[box.name], depths.states[box.name], flow, url[box.name]) for box in drawing.boxes]
    arrows = [_arrow(line, kinds[line.source, line.target], flow) for line in drawing.lines]
    return LivePicture(drawing, nodes, arrows)


def _node(box: Box, state: State, one: InState, flow: Flow, url: str) -> GraphNode:
    timed = state.automatic or state.expect_within or state.timeout_state
    oldest = span(one.oldest) if one.oldest is not None and timed else ""
    failures = flow.failures.get(box.name, 0.0)
    parts = [
        f"{box.name}: {count_text(one.count, one.cut)}",
        f"{count_text(one.ready)} ready",
        f"{one.leased:,} leased",
    ]
    parts += [f"oldest {oldest}"] if oldest else []
    parts += [f"expected within {span(state.expect_within)}"] if state.expect_within else []
    parts += [f"{count_text(one.stuck, one.cut)} stuck"] if one.stuck else []
    parts += [f"about {failures:,.0f} errors in the last hour"] if failures else []
    heat = one.heat if one.count and not state.terminal else 0
    return GraphNode(
        box=box,
        count=count_text(one.count, one.cut),
        summary=f"oldest {oldest}" if oldest else "moved from outside" if state.kind == "external" else "",
        failures=_rate(failures),
        title=", ".join(parts),
        url=url,
        css=f"{state.kind} heat-{heat}{' empty' if not one.count else ''}",
    )


def _arrow(line: DrawnEdge, kinds: list[str], flow: Flow) -> Arrow:
    moves = flow.edges.get((line.source, line.target), 0.0)
    names = list(dict.fromkeys(kinds))
    title = f"{line.source} to {line.target} ({', '.join(names)}): about {moves:,.0f} in the last hour"
    strength = sum(moves > least for least in (0, 100, 10_000))
    return Arrow(line, _rate(moves), title, f"{names[0]} flow-{strength}")


def _rate(count: float) -> str:
    if not count:
        return ""
    return "<1/h" if count < 1 else f"{count:,.0f}/h" if count < 1e6 else f"{count / 1e6:,.1f}M/h"


def drawn(model: type[StatorModel], depths: Depths, flow: Flow, pages: Pages) -> SafeString:
    """Return the picture for the page of the model."""
    values = {"label": model._meta.label, "picture": picture_of(model, depths, flow, pages)}
    return render_to_string("stator/admin/model_graph.svg", values)


charts.DRAWN.append(drawn)
