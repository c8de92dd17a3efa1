"""Sections of the overview that other apps add."""

import re
from typing import Any

import pytest
from django.test import Client

from stator.admin import Cell, Section, add_section
from tests.stator.admin.overviews import HOSTILE, PARCELS, text_of

pytestmark = pytest.mark.django_db


class TestSections:
    def test_that_other_apps_add(self, viewer: Client, own_sections: list[Any]) -> None:
        cells = (Cell("disk", url="/somewhere"), Cell.lasting(90, "error"), Cell.lasting(None), Cell(HOSTILE))
        add_section(lambda request: Section("disks", "Disks", ("What", "For", "", "Said"), [cells], note="noted"))
        page = viewer.get(PARCELS).text
        assert re.search(r'<summary><h2>Disks</h2> 1</summary>\s*<section[^>]* id="stator-disks"', page)
        assert '<a href="/somewhere">disk</a>' in page
        assert re.search(r'class="stator-error">1 m 30 s<', page)
        assert "<script>alert" not in page

    def test_nothing_for_who_may_not_see_it(self, viewer: Client, own_sections: list[Any]) -> None:
        add_section(lambda request: None)
        assert text_of(viewer)
