"""The overview: what each section shows, and at what cost."""

import re
from datetime import timedelta

import pytest
from django.contrib import admin
from django.test import Client
from django.utils import timezone

from stator.models import Depth, Pause, Report
from tests.situations import crew, full_limit
from tests.stator.admin.conftest import Login
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
    def test_title_of_the_tab_has_the_number_of_problems(self, viewer: Client) -> None:
        assert "<title>Overview |" in viewer.get(URL).text
        worker()
        put(Parcel, state_ready=False, state_crashes=3)
        failing()
        page = viewer.get(URL).text
        assert "<title>(2) Overview |" in page
        assert 'data-stator-count="2"' in page

    def test_begins_with_figures_that_have_their_last_hour_also_when_all_is_well(self, viewer: Client) -> None:
        worker()
        this = timezone.now().replace(second=0, microsecond=0)
        for back, moved in ((2, 600), (1, 1350)):
            minute = this - timedelta(minutes=back)
            # An hour may begin between them.
            own = {"model_label": "testapp.parcel", "minute": minute, "queued": 0}
            Depth.objects.create(**own, moved=moved - 600 * (back == 1 and minute.minute == 0), oldest=90, failing=7)
        page, text = viewer.get(URL).text, text_of(viewer, URL)
        assert "No problems" in text
        figures = (
            "Moves a second 12.5 last hour: at most 12.5 Longest wait none last hour: at most 1 m 30 s "
            "Failing 0 last hour: at most 7 Workers alive 1 last hour: at most 1"
        )
        assert figures in text
        assert text.index("Workers alive") < text.index("No problems") < text.index("Longest wait Leased")
        assert page.split('id="stator-troubles"')[0].count('<path class="line"') == 4

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


def test_errors_have_the_last_lines_of_the_log_for_users_who_may_see_reports(login: Login) -> None:
    failing()
    lines = [f"10:00:{number:02} INFO shop: asked the bank, {number}" for number in range(60)]
    Report.objects.update(log="\n".join(lines))
    text = text_of(login("view_overview", "view_parcel", "view_report"), part="errors")
    assert "Log 10:00:" in text
    assert [lines[-1] in text, lines[-5] in text, lines[0] in text] == [True, True, False]
    assert "shop: asked" not in text_of(login("view_overview", "view_parcel"), part="errors")


def test_admin_of_the_project_may_be_left_out(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(admin.site._registry, Parcel)
    failing()
    assert "ValueError" in text_of(viewer, part="errors")


def test_full_limit_leads_to_those_that_wait_and_to_those_that_hold_it(admin_client: Client) -> None:
    crew()
    full_limit()
    links = re.findall(r'<a class="stator-list" href="([^"]*)">(\w+)</a>', admin_client.get(URL).text)
    assert [(name, "condition=leased" in address) for address, name in links] == [("List", False), ("Holders", True)]
