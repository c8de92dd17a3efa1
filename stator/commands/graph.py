"""``stator graph``: the graph of a model as text that other programs draw, or drawn by Graphviz."""

import shutil
import subprocess
from argparse import ArgumentParser
from typing import Any

from stator.commands.answer import Answer, BadInput
from stator.commands.arguments import add_label, model_of, rows_of
from stator.commands.figures import counts, shown
from stator.durations import span
from stator.graph import Edge

HELP = "Print the graph of a model."
KINDS = {"transitions_to": "handler", "times_out_to": "timeout", "fails_to": "failure", "when": "condition"}
STYLES = {"timeout": "dashed", "failure": "dotted", "condition": "bold"}
DRAWN_WITHIN = 60


def add_arguments(parser: ArgumentParser) -> None:
    """The model and the format."""
    add_label(parser)
    parser.add_argument("--format", choices=["mermaid", "dot", "svg"], default="mermaid", help="Default: mermaid.")
    parser.add_argument("--counts", action="store_true", help="With the number of objects in each state.")


def run(options: dict[str, Any]) -> Answer:
    """The graph in the format asked for."""
    model = model_of(options["label"])
    numbers = counts(rows_of(model, options)) if options["counts"] else {}
    nodes = [_node(state, numbers) for state in model.state_graph.states.values()]
    edges = [described(edge) for edge in model.state_graph.edges]
    text = {"mermaid": mermaid, "dot": dot, "svg": svg}[options["format"]](model.__name__, nodes, edges)
    data = {"model": model._meta.label, "states": nodes, "edges": edges, "format": options["format"], "text": text}
    return Answer(data, text.splitlines())


def mermaid(title: str, nodes: list[dict[str, Any]], edges: list[dict[str, Any]]) -> str:
    """A Mermaid state diagram."""
    lines = ["stateDiagram-v2"]
    lines += [f"    {node['name']}: {node['label']}" for node in nodes if node["label"] != node["name"]]
    lines += [f"    [*] --> {node['name']}" for node in nodes if node["initial"]]
    lines += [f"    {edge['from']} --> {edge['to']}{_colon(edge['label'])}" for edge in edges]
    lines += [f"    {node['name']} --> [*]" for node in nodes if node["terminal"]]
    return "\n".join(lines)


def dot(title: str, nodes: list[dict[str, Any]], edges: list[dict[str, Any]]) -> str:
    """A Graphviz digraph."""
    lines = [f'digraph "{title}" {{', "    rankdir=LR;", "    node [shape=box, style=rounded];"]
    lines += [f'    "{node["name"]}" [label="{node["label"]}"{_border(node)}];' for node in nodes]
    lines += [f'    "{edge["from"]}" -> "{edge["to"]}" [label="{edge["label"]}"{_line(edge)}];' for edge in edges]
    return "\n".join([*lines, "}"])


def svg(title: str, nodes: list[dict[str, Any]], edges: list[dict[str, Any]]) -> str:
    """The digraph, drawn by Graphviz."""
    program = shutil.which("dot")
    if program is None:
        raise BadInput("--format svg needs Graphviz; install it (the program is called dot), or take mermaid")
    drawn = subprocess.run(
        [program, "-Tsvg"], input=dot(title, nodes, edges), capture_output=True, text=True, timeout=DRAWN_WITHIN,
        check=False,
    )  # fmt: skip
    if drawn.returncode:
        raise BadInput(f"dot failed: {' '.join(drawn.stderr.split())[:300]}")
    return drawn.stdout


def described(edge: Edge) -> dict[str, Any]:
    """An edge: its ends, its kind, and the words beside its line; none where a handler takes it."""
    kind = KINDS[edge.kind]
    label = "" if kind == "handler" else kind
    if edge.seconds:
        label = f"{label} {span(edge.seconds)}"
    return {"from": edge.state.name, "to": edge.other.name, "kind": kind, "label": label, "seconds": edge.seconds}


def _node(state: Any, numbers: dict[str, int]) -> dict[str, Any]:
    count = numbers.get(state.name)
    return {
        "name": state.name,
        "label": state.name if count is None else f"{state.name} ({shown(count)})",
        "count": count,
        "initial": state.initial,
        "terminal": state.terminal,
        "external": not state.terminal and not state.automatic,
    }


def _colon(label: str) -> str:
    return f": {label}" if label else ""


def _border(node: dict[str, Any]) -> str:
    if node["terminal"]:
        return ", peripheries=2"
    return ', style="rounded,dashed"' if node["external"] else ""


def _line(edge: dict[str, Any]) -> str:
    style = STYLES.get(edge["kind"])
    return f", style={style}" if style else ""
