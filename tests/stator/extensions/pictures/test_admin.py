"""Pictures on pages of the admin: with the way of an object, and with the numbers of a model."""

import re
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from stator.extensions.pictures.admin import of_models
from stator.models import Stats
from tests.stator.admin.requests import live, part, set_columns
from tests.stator.making import ago, put
from tests.stator.overviews import PARCELS
from tests.testapp.operators import Parcel

pytestmark = pytest.mark.django_db


class TestGraph:
    @pytest.mark.needs("reports")
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
        assert "stamped &#8594; delivered (by hand); it went here" in text

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


def test_graph_of_very_many_states_is_not_drawn(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_models, "MAX_STATES", 4)
    text = viewer.get(PARCELS).content.decode()
    assert "too many states for a picture" in text
    assert 'class="stator-graph"' not in text


def test_boxes_of_a_model_have_counts_age_heat_and_errors(viewer: Client) -> None:
    put(Parcel, state_changed=ago(8000))
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    Stats.objects.create(model_label="testapp.parcel", hour=hour, source="packed", to="", handled=9, failed=7)
    Stats.objects.create(model_label="testapp.parcel", hour=hour, source="packed", to="stamped", handled=1234)
    page = viewer.get(PARCELS).text
    assert re.search(r'<g class="box automatic heat-3"[^>]*><title>packed: 1, 1 ready', page)
    assert re.search(r'<text class="summary"[^>]*>oldest 2 h 13 m<', page)
    assert re.search(r'<text class="failures"[^>]*>errors 7/h<', page)
    assert re.search(r'<text class="label"[^>]*>1,234/h<', page)
