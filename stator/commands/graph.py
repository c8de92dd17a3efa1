"""``stator graph``: the graph of a model as text for other programs, or as a drawing."""

from argparse import ArgumentParser

from stator.commands.answer import Answer, Options
from stator.commands.arguments import add_label, model_of, rows_of
from stator.explain.survey import InState
from stator.graph import State
from stator.graph.drawing import Node, described, dot, mermaid, svg
from stator.overview.depths import depths
from stator.texts import told

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
        "label": state.name if here is None else f"{state.name} ({told(here.count, here.cut)})",
        "count": None if here is None else here.count,
        "initial": state.initial,
        "terminal": state.terminal,
        "external": state.kind == "external",
    }
