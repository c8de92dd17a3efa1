"""Drawings of a graph as text, Mermaid and Graphviz, and the dictionaries of its states and edges that they show."""

from collections.abc import Iterable
from typing import TypedDict

from stator.graph import Edge
from stator.graph.conditions import FollowedCondition
from stator.graph.dates import date_text
from stator.graph.durations import span

KINDS = {
    "transitions_to": "handler", "times_out_to": "timeout", "fails_to": "failure", "on": "event",
}  # fmt: skip
STYLES = {"timeout": "dashed", "failure": "dotted", "condition": "bold"}


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


def joined(edges: Iterable[Drawn]) -> dict[tuple[str, str], tuple[str, str]]:
    """Return the kind and the words of each pair of states; the kind is the kind of their first edge."""
    drawn: dict[tuple[str, str], tuple[str, str]] = {}
    for edge in edges:
        kind, words = drawn.get((edge["from"], edge["to"]), (edge["kind"], ""))
        drawn[edge["from"], edge["to"]] = kind, ", ".join(filter(None, [words, edge["label"]]))
    return drawn


def kind_of(edge: Edge) -> str:
    """Return what moves objects along an edge, in one word."""
    return KINDS.get(edge.kind, "condition")


def described(edge: Edge) -> Drawn:
    """Return an edge as a dictionary: its ends, its kind, and its label, which is empty for a handler's edge."""
    kind = kind_of(edge)
    label = "" if kind == "handler" else kind
    if edge.trigger:
        label = edge.trigger.label
    if isinstance(edge.condition, FollowedCondition):
        label = str(edge.condition)
    if edge.seconds:
        label = f"{label} {span(edge.seconds)}"
    if edge.at is not None:
        label = f"{label} at {date_text(edge.at)}"
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
