"""``stator graph``: the graph of a model as text for other programs, or as a drawing."""

from argparse import ArgumentParser

from django.template import Context, Engine

from stator.commands.answer import Answer, Options
from stator.commands.arguments import add_label, model_of, rows_of
from stator.extensions.pictures.drawing import Drawn, Node, described, dot, joined, mermaid
from stator.extensions.pictures.layout import LETTER, NARROWEST, Size, lay_out
from stator.graph import State
from stator.survey.depths import depths
from stator.survey.numbers import InState
from stator.texts import count_text

HELP = "Print the graph of a model."


def add_arguments(parser: ArgumentParser) -> None:
    """Add the model and the format."""
    add_label(parser)
    parser.add_argument("--format", choices=["mermaid", "dot", "svg"], default="mermaid", help="Default: mermaid.")
    parser.add_argument("--counts", action="store_true", help="Show the number of objects in each state.")


def run(options: Options) -> Answer:
    """Return the graph in the requested format."""
    model = model_of(options["label"])
    numbers = depths(rows_of(model, options)).states if options["counts"] else {}
    nodes = [_node(state, numbers) for state in model.state_graph.states.values()]
    edges = [described(edge) for edge in model.state_graph.edges]
    text = {"mermaid": mermaid, "dot": dot, "svg": svg}[options["format"]](model.__name__, nodes, edges)
    data = {"model": model._meta.label, "states": nodes, "edges": edges, "format": options["format"], "text": text}
    return Answer(data, text.splitlines())


def _node(state: State, numbers: dict[str, InState]) -> Node:
    here = numbers.get(state.name)
    return {
        "name": state.name,
        "label": state.name if here is None else f"{state.name} ({count_text(here.count, here.cut)})",
        "count": None if here is None else here.count,
        "initial": state.initial,
        "terminal": state.terminal,
        "external": state.kind == "external",
    }


def svg(title: str, nodes: list[Node], edges: list[Drawn]) -> str:
    """Return a drawing that needs no other program: dark lines on white, in every viewer."""
    ways, named = joined(edges), {node["name"]: node for node in nodes}
    first = [node["name"] for node in nodes if node["initial"]]
    longest = max(len(node["label"]) for node in nodes)
    size = Size(narrowest=max(NARROWEST, LETTER * longest + 28))
    lines = tuple((*ends, words) for ends, (_, words) in ways.items())
    picture = lay_out(tuple(dict.fromkeys([*first, *named])), lines, size)
    shown = {
        "title": title,
        "picture": picture,
        "lines": [(line, *ways[line.source, line.target]) for line in picture.lines],
        "boxes": [(box, named[box.name]) for box in picture.boxes],
    }
    # By an engine of its own: a project that only runs workers may have none.
    return Engine(app_dirs=True).render_to_string("stator/graph.svg", Context(shown, use_l10n=False))
