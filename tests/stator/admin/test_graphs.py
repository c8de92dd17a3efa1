"""Graphs on the overview: boxes, numbers and charts."""

import re

import pytest
from django.test import Client
from django.utils import timezone

from stator.admin import graphs
from stator.models import Depth, Stats
from tests.stator.admin.overviews import PARCELS
from tests.stator.making import ago, put
from tests.testapp.operators import Parcel

pytestmark = pytest.mark.django_db


def test_graph_of_very_many_states_is_not_drawn(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "MAX_STATES", 4)
    text = viewer.get(PARCELS).content.decode()
    assert "too many states for a picture" in text
    assert 'class="stator-graph"' not in text


class TestGraphs:
    def test_boxes_have_counts_age_heat_and_errors(self, viewer: Client) -> None:
        put(Parcel, state_changed=ago(8000))
        hour = timezone.now().replace(minute=0, second=0, microsecond=0)
        Stats.objects.create(model_label="testapp.parcel", hour=hour, source="packed", to="", handled=9, failed=7)
        Stats.objects.create(model_label="testapp.parcel", hour=hour, source="packed", to="stamped", handled=1234)
        page = viewer.get(PARCELS).text
        assert re.search(r'<g class="box automatic heat-3"[^>]*><title>packed: 1, 1 ready', page)
        assert re.search(r'<text class="told"[^>]*>oldest 2 h 13 m<', page)
        assert re.search(r'<text class="failures"[^>]*>errors 7/h<', page)
        assert re.search(r'<text class="label"[^>]*>1,234/h<', page)
        assert '<g class="line failure flow-0">' in page
        assert 'class="box external heat-0 empty"' in page

    def test_charts_of_the_day_and_of_the_month(self, viewer: Client) -> None:
        hour = timezone.now().replace(minute=0, second=0, microsecond=0)
        Stats.objects.create(model_label="testapp.parcel", hour=hour, source="packed", to="", handled=12, failed=5)
        Depth.objects.create(model_label="testapp.parcel", minute=hour, queued=77)
        day, month = viewer.get(PARCELS).text, viewer.get(f"{PARCELS}&period=month").text
        assert "Attempts handled: 12 in all, 0 moved, 7 stayed" in day
        for page, bars in ((day, 24), (month, 30)):
            assert page.count('class="hit"') == 2 * bars
            assert page.count('class="bar"') == 2
            assert page.count('class="bad"') == 1
            assert "Attempts handled: 12 in all" in page
            assert "77 at most" in page
