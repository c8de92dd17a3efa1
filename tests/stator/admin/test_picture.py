"""The graph of a row as a picture on its page."""

import re
from typing import Any

import pytest
from django.test import Client

from tests.stator.admin.requests import live, part, set_columns
from tests.testapp.operators import Parcel

pytestmark = pytest.mark.django_db


class TestGraph:
    def test_shows_where_it_is_and_how_it_came(self, admin_client: Client) -> None:
        parcel = Parcel.objects.create()
        parcel.transition_perform("stamped", actor="ada")
        parcel.transition_perform("delivered", actor="ada")
        text = part(live(admin_client, parcel), "graph")
        boxes = re.findall(r'<g class="stator-box ([^"]+)">.*?<text[^>]*>(\w+)<', text)
        here = {name for classes, name in boxes if "stator-here" in classes}
        been = {name for classes, name in boxes if "stator-been" in classes}
        assert here == {"delivered"}
        assert been == {"packed", "stamped", "delivered"}
        assert "you are here" in text
        assert re.findall(r"<title>(\w+) &#8594; (\w+)[^<]*; it went here<", text) == [
            ("packed", "stamped"), ("stamped", "delivered"),
        ]  # fmt: skip
        assert "stamped &#8594; delivered (by hand); it went here" in text
        assert "timeout 7 d" in text

    def test_state_that_no_code_knows_is_drawn(self, admin_client: Client) -> None:
        parcel = Parcel.objects.create()
        set_columns(parcel, state="gone away")
        text = part(live(admin_client, parcel), "graph")
        assert re.search(r"stator-box stator-unknown stator-here[^\n]*>gone away<", text)

    def test_numbers_are_those_of_svg_in_any_language(self, admin_client: Client, settings: Any) -> None:
        settings.LANGUAGE_CODE = "de"
        settings.USE_THOUSAND_SEPARATOR = True
        text = part(live(admin_client, Parcel.objects.create()), "graph")
        for number in re.findall(r' (?:x|y|width|height)="([^"]*)"', text):
            assert re.fullmatch(r"\d+(\.\d+)?", number)
