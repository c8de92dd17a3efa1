"""One state and its edges: a timeout that cannot be."""

import pytest

from stator.exceptions import GraphError
from stator.graph.graphs import State, StateGraph


def timeout(seconds):
    class Timed(StateGraph):
        opened = State(externally_progressed=True)
        closed = State()
        opened.times_out_to(closed, seconds=seconds)


@pytest.mark.parametrize("seconds", [0, -1, None, "5", float("nan"), float("inf"), 1e18])
def test_wrong_timeout_names_the_edge(seconds):
    with pytest.raises(GraphError, match=r"^Timed\.opened\.times_out_to\(closed\): seconds=.* must be a number"):
        timeout(seconds)
