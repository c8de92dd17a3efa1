"""Drawings of a graph as text: Mermaid, Graphviz and SVG, from dictionaries of its states and edges."""

from collections.abc import Iterable
from html import escape
from typing import TypedDict

from stator.graph import Edge
from stator.graph.durations import span
from stator.graph.layout import LETTER, NARROWEST, Box, Line, Size, lay_out
from stator.graph.states import AwaitedRelation

KINDS = {
    "transitions_to": "handler", "times_out_to": "timeout", "fails_to": "failure", "when": "condition", "on": "event",
    "when_all": "condition", "when_any": "condition",
}  # fmt: skip
STYLES = {"timeout": "dashed", "failure": "dotted", "condition": "bold"}
SVG_STYLES = {
    "timeout": ' stroke-dasharray="6 4"', "failure": ' stroke-dasharray="2 4"', "condition": ' stroke-width="2"',
}  # fmt: skip


class Node(TypedDict):
    """A state to draw; ``count``: how many objects are in it, None if they were not counted."""

    name: str
    label: str
    count: int | None
    initial: bool
    terminal: bool
    external: bool


# An edge to draw, from state to state. In this form because ``from`` is a keyword.
Drawn = TypedDict("Drawn", {"from": str, "to": str, "kind": str, "label": str, "seconds": float | None})

SVG_HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" \
font-family="sans-serif" font-size="14">
<title>{title}</title>
<defs><marker id="arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">\
<path d="M0,0 L10,5 L0,10 z" fill="#444"/></marker></defs>
<rect width="{width}" height="{height}" fill="#fff"/>"""


def mermaid(title: str, nodes: list[Node], edges: list[Drawn]) -> str:
    """Return a Mermaid state diagram."""
    lines = ["stateDiagram-v2"]
    lines += [f"    {node['name']}: {node['label']}" for node in nodes if node["label"] != node["name"]]
    lines += [f"    [*] --> {node['name']}" for node in nodes if node["initial"]]
    lines += [f"    {edge['from']} --> {edge['to']}{_colon(edge['label'])}" for edge in edges]
    lines += [f"    {node['name']} --> [*]" for node in nodes if node["terminal"]]
    return "\n".join(lines)


def dot(title: str, nodes: list[Node], edges: list[Drawn]) -> str:
    """Return a Graphviz digraph."""
    lines = [f'digraph "{title}" {{', "    rankdir=LR;", "    node [shape=box, style=rounded];"]
    lines += [f'    "{node["name"]}" [label="{node["label"]}"{_border(node)}];' for node in nodes]
    lines += [f'    "{edge["from"]}" -> "{edge["to"]}" [label="{edge["label"]}"{_line(edge)}];' for edge in edges]
    return "\n".join([*lines, "}"])


def svg(title: str, nodes: list[Node], edges: list[Drawn]) -> str:
    """Return a drawing that needs no other program: dark lines on white, in every viewer."""
    ways = joined(edges)
    first = [node["name"] for node in nodes if node["initial"]]
    names = tuple(dict.fromkeys([*first, *(node["name"] for node in nodes)]))
    longest = max(len(node["label"]) for node in nodes)
    size = Size(narrowest=max(NARROWEST, LETTER * longest + 28))
    picture = lay_out(names, tuple((*ends, words) for ends, (_, words) in ways.items()), size)
    named = {node["name"]: node for node in nodes}
    lines = [
        SVG_HEAD.format(title=escape(title), width=f"{picture.width:.0f}", height=f"{picture.height:.0f}"),
        *(_drawn_line(line, ways[line.source, line.target][0]) for line in picture.lines),
        *(_words(line, ways[line.source, line.target][1]) for line in picture.lines),
        *(_drawn_box(box, named[box.name]) for box in picture.boxes),
    ]
    return "\n".join([*filter(None, lines), "</svg>"])


def joined(edges: Iterable[Drawn]) -> dict[tuple[str, str], tuple[str, str]]:
    """Return the kind and the words of each pair of states; the kind is the kind of their first edge."""
    found: dict[tuple[str, str], tuple[str, str]] = {}
    for edge in edges:
        kind, words = found.get((edge["from"], edge["to"]), (edge["kind"], ""))
        found[edge["from"], edge["to"]] = kind, ", ".join(filter(None, [words, edge["label"]]))
    return found


def _drawn_line(line: Line, kind: str) -> str:
    return f'<path d="{line.path}" fill="none" stroke="#444" marker-end="url(#arrow)"{SVG_STYLES.get(kind, "")}/>'


def _words(line: Line, words: str) -> str:
    looks = 'text-anchor="middle" font-size="11" paint-order="stroke" stroke="#fff" stroke-width="4"'
    return f'<text x="{line.x}" y="{line.y - 4:.1f}" {looks}>{escape(words)}</text>' if words else ""


def _drawn_box(box: Box, node: Node) -> str:
    border = ' stroke-width="3"' if node["terminal"] else ' stroke-dasharray="4 3"' if node["external"] else ""
    place = f'x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}"'
    name = f'<text x="{box.middle:.1f}" y="{box.centre + 5:.1f}" text-anchor="middle">{escape(node["label"])}</text>'
    return f'<rect {place} rx="6" fill="#fff" stroke="#444"{border}/>{name}'


def described(edge: Edge) -> Drawn:
    """Return an edge as a dictionary: its ends, its kind, and its label, which is empty for a handler's edge."""
    kind = KINDS[edge.kind]
    label = "" if kind == "handler" else kind
    if edge.event:
        label = edge.event.name if edge.event.count == 1 else f"{edge.event.name} from {edge.event.count}"
    if isinstance(edge.condition, AwaitedRelation):
        label = str(edge.condition)
    if edge.seconds:
        label = f"{label} {span(edge.seconds)}"
    return {"from": edge.state.name, "to": edge.other.name, "kind": kind, "label": label, "seconds": edge.seconds}


def _colon(label: str) -> str:
    return f": {label}" if label else ""


def _border(node: Node) -> str:
    if node["terminal"]:
        return ", peripheries=2"
    return ', style="rounded,dashed"' if node["external"] else ""


def _line(edge: Drawn) -> str:
    style = STYLES.get(edge["kind"])
    return f", style={style}" if style else ""
