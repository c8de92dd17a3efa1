"""Pictures of graphs: boxes in columns, lines between them."""

import re
from xml.etree import ElementTree

from stator.extensions.pictures import graph
from stator.extensions.pictures.layout import BOX_HEIGHT, Box, Picture, lay_out
from stator.models import StatorModel

LINE = (("a", "b", ""), ("b", "c", ""))


def box_of(picture: Picture, name: str) -> Box:
    [box] = [box for box in picture.boxes if box.name == name]
    return box


def points(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"(-?[\d.]+),(-?[\d.]+)", path)]


def edges_of(graph):
    return tuple(dict.fromkeys((edge.state.name, edge.other.name, "") for edge in graph.edges))


def test_states_follow_each_other_from_left_to_right_and_each_has_a_box():
    assert {box.name for box in lay_out(("a", "b", "c", "lost"), LINE).boxes} == {"a", "b", "c", "lost"}
    picture = lay_out(("a", "b", "c"), LINE)
    a, b, c = picture.boxes
    assert a.right < b.x < b.right < c.x
    assert a.y == b.y == c.y

    # Lines go from the edge of one box to that of another.
    first, second = points(picture.lines[0].path), points(picture.lines[1].path)
    assert first[0] == (box_of(picture, "a").right, box_of(picture, "a").y + BOX_HEIGHT / 2)
    assert first[-1] == (box_of(picture, "b").x, box_of(picture, "b").y + BOX_HEIGHT / 2)
    assert second[-1][0] == box_of(picture, "c").x


def test_line_back_ends_at_the_box_it_leads_to_and_runs_beside_the_one_that_leads_there():
    picture = lay_out(("a", "b"), (("a", "b", ""), ("b", "a", "")))
    there, back = (points(line.path) for line in picture.lines)
    assert [(line.source, line.target) for line in picture.lines] == [("a", "b"), ("b", "a")]
    assert there[0][0] == back[-1][0] == box_of(picture, "a").right
    assert there[0][1] != back[-1][1]


def test_line_that_skips_a_column_passes_the_boxes_in_it():
    picture = lay_out(("a", "b", "c"), (*LINE, ("a", "c", "failure")))
    [line] = [line for line in picture.lines if line.target == "c" and line.source == "a"]
    b = box_of(picture, "b")
    within = [y for x, y in points(line.path) if b.x <= x <= b.right]
    assert within
    assert all(y < b.y or y > b.y + BOX_HEIGHT for y in within)


def test_circle_of_any_length_is_laid_out():
    names = tuple(f"s{number}" for number in range(1200))
    picture = lay_out(names, tuple((name, names[number - 1199], "") for number, name in enumerate(names)))
    assert len(picture.lines) == len(names)


def test_boxes_of_real_graphs_lie_apart_and_within_the_picture():
    for each in {model.state_graph for model in StatorModel.subclasses}:
        assert_apart_and_within(each)


def assert_apart_and_within(graph):
    picture = lay_out(tuple(dict.fromkeys([graph.initial_state.name, *graph.states])), edges_of(graph))
    for number, box in enumerate(picture.boxes):
        assert 0 <= box.x < box.right <= picture.width
        assert 0 <= box.y < box.y + box.height <= picture.height
        for other in picture.boxes[:number]:
            apart = box.right < other.x or other.right < box.x or abs(box.y - other.y) > BOX_HEIGHT
            assert apart, f"{box.name} lies over {other.name}"
    assert {(line.source, line.target) for line in picture.lines} == {edge[:2] for edge in edges_of(graph)}
    for line in picture.lines:
        assert all(0 <= x <= picture.width and 0 <= y <= picture.height for x, y in points(line.path))


# Drawings of a graph as text: hostile names, and a name for each kind of edge


def test_svg_of_hostile_names_stays_well_formed():
    node = {"name": "a", "label": "<b>&", "count": None, "initial": True, "terminal": True, "external": False}
    drawn = ElementTree.fromstring(graph.svg('<i>"', [node], []))
    assert [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")] == ["<b>&"]
