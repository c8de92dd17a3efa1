"""Where boxes and lines go."""

import itertools

import pytest

from examples.codeindex.graph import SourceFileGraph
from stator.overview.drawing import HEIGHT, WIDTH, draw
from tasks.graph import TaskGraph
from tests.testapp.operators import EagerGraph, ParcelGraph


def pairs_of(graph):
    return [(edge.state.name, edge.other.name) for edge in graph.edges]


def box(drawing, name):
    return next(box for box in drawing.boxes if box.name == name)


class TestDraw:
    @pytest.mark.parametrize("graph", [SourceFileGraph, TaskGraph, ParcelGraph, EagerGraph])
    def test_every_state_and_edge_is_in_it_once_and_no_boxes_overlap(self, graph):
        drawing = draw(graph.states, pairs_of(graph))
        assert [box.name for box in drawing.boxes] == list(graph.states)
        assert sorted((line.source, line.to) for line in drawing.lines) == sorted(set(pairs_of(graph)))
        for one, other in itertools.combinations(drawing.boxes, 2):
            assert abs(one.x - other.x) >= WIDTH or abs(one.y - other.y) >= HEIGHT, f"{one} covers {other}"
        for box in drawing.boxes:
            assert 0 <= box.x <= drawing.width - WIDTH
            assert 0 <= box.y <= drawing.height - HEIGHT

    def test_objects_go_from_left_to_right(self):
        drawing = draw("abc", [("a", "b"), ("b", "c"), ("a", "c")])
        assert box(drawing, "a").x < box(drawing, "b").x < box(drawing, "c").x

    def test_line_passes_the_states_between_its_ends_apart_from_their_boxes(self):
        drawing = draw("abc", [("a", "b"), ("b", "c"), ("a", "c")])
        line = next(line for line in drawing.lines if (line.source, line.to) == ("a", "c"))
        assert abs(line.y - (box(drawing, "b").y + HEIGHT / 2)) > HEIGHT / 2

    def test_line_that_leads_back_ends_at_the_right_of_the_earlier_state(self):
        drawing = draw("ab", [("a", "b"), ("b", "a")])
        onward, back = drawing.lines
        assert (onward.back, back.back) == (False, True)
        assert back.path.endswith(f"{box(drawing, 'a').x + WIDTH:.0f},{box(drawing, 'a').y + HEIGHT / 2 + 9:.0f}")
        assert onward.path != back.path

    def test_state_that_leads_to_itself_has_a_loop(self):
        [line] = draw("a", [("a", "a")]).lines
        assert line.path.startswith("M")

    def test_graph_without_edges_is_drawn(self):
        assert len(draw("a", []).boxes) == 1

    def test_long_circle_ends(self):
        names = [f"s{number}" for number in range(40)]
        drawing = draw(names, [*itertools.pairwise(names), (names[-1], names[0])])
        assert len(drawing.boxes) == 40
