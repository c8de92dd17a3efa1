"""The overview: what each section shows, and at what cost."""

import re
from html import escape
from typing import Any

import pytest
from django.contrib import admin
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from stator.models import Pause
from tests.stator.admin.overviews import PARCELS, URL, failing, held, text_of, worker
from tests.stator.making import ago, change, put
from tests.testapp.operators import Parcel

pytestmark = pytest.mark.django_db


class TestTroubles:
    def test_all_is_well(self, viewer: Client) -> None:
        assert "No problems" in text_of(viewer)

    def test_of_objects_without_a_worker(self, viewer: Client) -> None:
        put(Parcel)
        assert "testapp.Parcel 1 waits, but no live worker serves it; start runstator" in text_of(
            viewer, part="troubles"
        )

    def test_of_too_few_workers(self, viewer: Client) -> None:
        worker()
        put(Parcel, state_changed=ago(1000))
        assert "the first has waited 16 m 40 s, and 1 live worker has not taken it" in text_of(viewer, part="troubles")
        put(Parcel)

    def test_of_objects_in_a_state_that_this_code_does_not_know(self, viewer: Client) -> None:
        change(put(Parcel, state_ready=False), state="gone")
        text = viewer.get(PARCELS).content.decode()
        assert "1 in a state that neither this code nor a live worker knows" in text
        assert f"/admin/testapp/parcel/?{escape('condition=unknown')}" in text

    def test_of_stuck_quarantined_late_failing_and_paused_objects(self, viewer: Client) -> None:
        worker()
        put(Parcel, state_ready=False, state_next_attempt=ago(-500), state_changed=ago(8000))
        put(Parcel, state_ready=False, state_crashes=3)
        held(state_locked_until=ago(30))
        failing()
        Pause.objects.create(model_label="testapp.parcel", state="packed", actor="anna", reason="strike")
        troubles = text_of(viewer, part="troubles")
        for text in (
            "1 quarantined",
            "1 lease expired and not taken over",
            "1 failing in packed with ValueError",
            "without an end (strike); 1 later than expected",
        ):
            assert text in troubles
        assert troubles.index("1 quarantined") < troubles.index("1 failing")
        # Rows that wait because of the pause are no trouble of their own.
        assert "1 later than expected in packed" not in troubles


class TestPage:
    def test_is_linked_from_the_index_of_the_admin(self, viewer: Client) -> None:
        assert f'href="{URL}"' in viewer.get("/admin/").text

    def test_refreshes_itself_without_a_line_of_script_in_it(self, viewer: Client) -> None:
        page = viewer.get(PARCELS).text
        assert '<noscript><meta http-equiv="refresh" content="60"></noscript>' in page
        assert 'src="/static/stator/overview.js" defer' in page
        assert not re.search(r"<script(?![^>]*src=)[^>]*>[^<]", page.split('id="content-main"')[1])
        assert not re.search(r'\son\w+="|\sstyle="', page.split('id="content-main"')[1])

    def test_gives_what_is_refreshed_alone(self, viewer: Client) -> None:
        response = viewer.get(f"{PARCELS}&live=1")
        assert "no-store" in response["Cache-Control"]
        assert "<html" not in response.text
        assert 'id="stator-workers"' in response.text

    def test_takes_as_many_statements_with_much_as_with_little(self, operator: Client, own_sections: list[Any]) -> None:
        counts = []
        for _ in range(2):
            worker(id=f"{len(counts):012x}")
            for number in range(1 + 20 * len(counts)):
                put(Parcel, state_changed=ago(8000))
                held()
                failing(f"f{number}")
                Pause.objects.create(model_label="testapp.parcel", until=ago(-50))
            with CaptureQueriesContext(connection) as queries:
                operator.get(f"{PARCELS}&live=1")
            counts.append(len(queries))
        assert counts[0] == counts[1]
        # Session, user, two of permissions; pauses, four of flow, two of depths, two that name stuck objects,
        # workers and their graphs, two of errors and one for the model that has some.
        assert counts[0] == 17

    def test_needs_no_object_of_another_site(self, viewer: Client) -> None:
        for path in ("add/", "1/change/", "1/delete/", "1/history/"):
            assert viewer.get(f"{URL}{path}").status_code in (302, 404)


def test_admin_of_the_project_may_be_left_out(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(admin.site._registry, Parcel)
    failing()
    assert "ValueError" in text_of(viewer, part="errors")
