"""Contents of the overview for each model: charts, figures, objects and workers."""

import re

import pytest
from django.test import Client
from django.utils import timezone

from stator.extensions.progress.models import keep_progress, reached
from stator.models import Depth, History, Stats
from tests.stator.making import ago, put
from tests.stator.overviews import HOSTILE, PARCELS, URL, WORKER, failing, held, text_of, worker
from tests.testapp.operators import Parcel
from tests.testapp.power import OrderGraph

pytestmark = pytest.mark.django_db


class TestCharts:
    def test_charts_of_the_day_and_of_the_month(self, viewer: Client) -> None:
        hour = timezone.now().replace(minute=0, second=0, microsecond=0)
        Stats.objects.create(model_label="testapp.parcel", hour=hour, source="packed", to="", handled=12, failed=5)
        minute = ago(120).replace(second=0, microsecond=0)
        Depth.objects.create(model_label="testapp.parcel", minute=minute, queued=77, oldest=90)
        day, month = viewer.get(PARCELS).text, viewer.get(f"{PARCELS}&period=month").text
        assert "Attempts handled: 12 in all, 0 moved, 7 stayed" in day
        for page in (day, month):
            assert "Attempts handled: 12 in all" in page
            assert "77 at most" in page
        assert "Longest wait, in seconds: 1 m 30 s at most" in viewer.get(f"{PARCELS}&period=hour").text


class TestModels:
    def test_page_has_figures_errors_stuck_objects_and_workers_with_what_each_runs(self, operator: Client) -> None:
        worker(lost=3, handled=1234)
        put(Parcel)
        stuck, parcel = put(Parcel, state_changed=ago(7985)), held()
        keep_progress("default", "testapp.parcel", [(parcel.pk, parcel.state_claim, reached(1, 4, "box 1"))])
        for fingerprint, message, error in (
            ("aa", "connection refused", "ConnectionError"), ("aa", "connection refused", "ConnectionError"),
            ("bb", "no such key", "KeyError"),
        ):  # fmt: skip
            failing(fingerprint, message, error)
        put(Parcel, state="sent", state_ready=False)
        models = text_of(operator, URL, part="models")
        errors, workers = (text_of(operator, part=part) for part in ("errors", "workers"))
        row = r"testapp.Parcel \u2014 packed: 6 sent: 1 packed 6, sent 1 2 2 h 13 m 1 3 failing, 1 stuck 1"
        assert re.search(row, models), models[:400]
        assert re.search(r"2 of 2 ConnectionError connection refused .* 1 of 1 KeyError no such key", errors)
        assert f"testapp.Parcel {stuck.pk} packed 2 h 13 m 1 h" in text_of(operator, part="stuck")
        assert f'<a href="/admin/testapp/parcel/{stuck.pk}/change/">testapp.Parcel' in operator.get(PARCELS).text
        assert f"example, process 42 {WORKER}, version 1.2 alive" in workers
        told = rf"testapp.Parcel {parcel.pk} in packed, \d+ s 1 of 4 \(25 %\), box 1 1,234 3 testapp.parcel"
        assert re.search(told, workers)

    def test_without_objects_are_folded_with_links_to_their_pages(self, viewer: Client) -> None:
        put(Parcel, state="sent", state_ready=False)
        rows, _, folded = viewer.get(URL).text.partition('id="stator-fold-quiet"')
        assert '<a href="?model=testapp.Parcel">' in rows
        assert '<a href="?model=codeindex.SourceFile">' not in rows
        assert '<a href="?model=codeindex.SourceFile">' in folded
        assert "Graph" not in text_of(viewer, URL)
        assert "Graph list of objects" in text_of(viewer)


def test_times_in_states_are_beneath_the_graph(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OrderGraph.working, "expect_within", 30)
    own = {"model_label": "testapp.order", "object_pk": "1", "version": 1, "kind": "move", "to": "shipped"}
    for source, stay in (("working", 2), ("working", 40), (HOSTILE, 90)):
        History.objects.create(**own, source=source, stay=stay)
    url = f"{URL}?model=testapp.Order"
    assert "Time in state, of the last 3 moves State Moves Half within 95 % within" in text_of(viewer, url)
    page = viewer.get(url).text
    assert '<td class="num stator-warning" data-label="Longer than expected">50 % (more than 30 s)</td>' in page
    assert "<script>alert" not in page
