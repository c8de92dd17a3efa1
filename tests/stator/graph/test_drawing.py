"""Drawings of a graph as text: hostile names, and a name for each kind of edge."""

from xml.etree import ElementTree

import pytest

from stator.commands import graph

pytestmark = pytest.mark.django_db(transaction=True)


def test_svg_of_hostile_names_stays_well_formed():
    node = {"name": "a", "label": "<b>&", "count": None, "initial": True, "terminal": True, "external": False}
    drawn = ElementTree.fromstring(graph.svg('<i>"', [node], []))
    assert [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")] == ["<b>&"]
