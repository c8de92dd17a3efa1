"""The overview: what each section shows, and at what cost."""

import re

import pytest
from django.contrib import admin
from django.test import Client

from stator.models import Pause
from tests.stator.admin.overviews import PARCELS, URL, failing, held, text_of, worker
from tests.stator.making import ago, put
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

    def test_needs_no_object_of_another_site(self, viewer: Client) -> None:
        for path in ("add/", "1/change/", "1/delete/", "1/history/"):
            assert viewer.get(f"{URL}{path}").status_code in (302, 404)


def test_admin_of_the_project_may_be_left_out(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(admin.site._registry, Parcel)
    failing()
    assert "ValueError" in text_of(viewer, part="errors")
