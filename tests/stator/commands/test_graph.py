"""``stator graph``: the graph of a model as Mermaid, for Graphviz, and as SVG."""

from xml.etree import ElementTree

import pytest

from tests.stator.commands.errands import LABEL, asked, run
from tests.stator.making import put
from tests.testapp.explained import Errand

pytestmark = pytest.mark.django_db(transaction=True)


def test_graph_as_mermaid_has_every_state_and_labels_by_kind():
    lines = run("graph", LABEL).splitlines()
    assert lines[0] == "stateDiagram-v2"
    for line in (
        "[*] --> new", "new --> limited", "outside --> done: timeout 3 d", "heir --> swept: failure",
        "asked --> done: condition", "done --> [*]",
    ):  # fmt: skip
        assert f"    {line}" in lines


def test_graph_with_counts():
    put(Errand)
    assert "    new: new (1)" in run("graph", LABEL, "--counts").splitlines()
    answer = asked("graph", LABEL, "--counts", "--format", "dot")
    assert {node["name"]: node["count"] for node in answer["states"]}["new"] == 1
    assert {edge["kind"] for edge in answer["edges"]} == {"handler", "timeout", "failure", "condition"}
    assert answer["text"].startswith('digraph "Errand" {')


def test_graph_as_svg_has_every_state_and_edge():
    drawn = ElementTree.fromstring(run("graph", LABEL, "--format", "svg", "--counts"))
    texts = [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    states = Errand.state_graph.states
    assert {text.split(" (")[0] for text in texts} >= set(states)
    assert "timeout 3 d" in texts
    assert len(drawn.findall("{http://www.w3.org/2000/svg}path")) == len(
        {(edge.state.name, edge.other.name) for edge in Errand.state_graph.edges}
    )
