"""Graphs as text and as a drawing: ``stator graph``, and the labels of edges."""

from xml.etree import ElementTree

import pytest

from stator.extensions.pictures.drawing import described
from tests.stator.commands.errands import LABEL, asked, run
from tests.stator.making import put
from tests.testapp.baskets import Basket
from tests.testapp.dated import WatchGraph
from tests.testapp.explained import Errand

pytestmark = pytest.mark.django_db


def test_graph_is_drawn_as_mermaid_dot_and_svg_with_counts_if_asked():
    put(Errand)
    lines = run("graph", LABEL, "--counts").splitlines()
    assert {"stateDiagram-v2", "    new: new (1)", "    outside --> done: timeout 3 d"} <= {*lines}
    answer = asked("graph", LABEL, "--counts", "--format", "dot")
    assert {node["name"]: node["count"] for node in answer["states"]}["new"] == 1
    assert {edge["kind"] for edge in answer["edges"]} == {"handler", "timeout", "failure", "condition"}
    assert answer["text"].startswith('digraph "Errand" {')
    drawn = ElementTree.fromstring(run("graph", LABEL, "--format", "svg", "--counts"))
    texts = [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")]
    assert {text.split(" (")[0] for text in texts} >= {*Errand.state_graph.states, "timeout 3 d"}


def test_edges_are_drawn_with_what_they_wait_for_and_until_when():
    labels = [described(edge)["label"] for edge in Basket.state_graph.edges if edge.state == "collecting"]
    assert labels == ["all of items in packed", "any of items in lost", ""]
    labels = [described(edge)["label"] for edge in WatchGraph.edges if edge.kind == "times_out_to"]
    assert labels == ["timeout at alert_after", "timeout at alert_after + kept_for + 1 h"]
