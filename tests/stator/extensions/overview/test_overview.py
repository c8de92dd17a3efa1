"""The overview: what each section shows, and at what cost."""

import re
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib import admin
from django.test import Client
from django.utils import timezone

from stator.admin import Cell, Section, StatorAdmin, add_section
from stator.extensions.overview import admin as module
from stator.models import Depth, History, Pause, Report
from tests.stator.admin.conftest import Login, Replace
from tests.stator.making import ago, change, put, raw, row
from tests.stator.overviews import HOSTILE, PARCELS, URL, failing, held, retry, text_of, worker
from tests.testapp.operators import Parcel

pytestmark = pytest.mark.django_db


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
        text = text_of(viewer, URL)
        assert "No problems" in text
        assert "Moves a second 12.5 last hour: at most 12.5 Longest wait none last hour: at most 1 m 30 s" in text


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


def test_errors_are_counted_apart_from_the_objects_that_still_fail(viewer: Client) -> None:
    failing()
    change(failing(), state_failures=0)
    assert "1 of 2" in text_of(viewer, part="errors")


def said(response: Any) -> str:
    return unescape(re.search(r'<ul class="messagelist">(.*?)</ul>', response.text, re.DOTALL)[1])  # type: ignore[index]


class TestRetry:
    def test_spreads_what_fails_with_one_error_over_time(self, operator: Client) -> None:
        parcels = [failing("aa") for _ in range(3)]
        other = failing("bb")
        response = operator.get(retry(operator, per_minute="2").url)
        assert "3 parcels become due over the next 2 minutes, 2 a minute." in said(response)
        due = [-(ago(0) - row(one).state_next_attempt).total_seconds() for one in parcels]
        assert sorted(round(seconds, -1) for seconds in due) == [0, 30, 60]
        assert row(other).state_failures == 1
        assert {act.actor for act in History.objects.all()} == {"view_overview+view_parcel+change_parcel"}

    def test_ends_at_the_most_of_one_request_and_says_so(
        self, operator: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "MAX_RETRIED", 2)
        for _ in range(3):
            failing()
        assert "repeat it for the rest" in said(operator.get(retry(operator).url))
        assert raw(Parcel).filter(state_failures=0).count() == 2
        retry(operator)
        assert raw(Parcel).filter(state_failures=0).count() == 3

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            ({"per_minute": "0"}, "per_minute: Ensure this value is greater than or equal to 0.1."),
            ({"model": "auth.User"}, "model: there is no managed model with this label"),
        ],
    )
    def test_refuses_nonsense_in_one_line(self, operator: Client, data: dict[str, str], message: str) -> None:
        parcel = failing()
        answer = said(operator.get(retry(operator, **data).url))
        assert f"Nothing was retried: {message}" in answer
        assert row(parcel).state_failures == 1


class TestSections:
    def test_that_other_apps_add_come_in_the_order_in_which_they_were_added(
        self, viewer: Client, own_sections: list[Any]
    ) -> None:
        cells = (Cell("disk", url="/somewhere"), Cell.lasting(90, "error"), Cell.lasting(None), Cell(HOSTILE))
        add_section(lambda request: Section("disks", "Disks", ("What", "For", "", "Said"), [cells], note="noted"))
        add_section(lambda request: None)
        add_section(lambda request: Section("cats", "Cats", ("What",)))
        page = viewer.get(PARCELS).text
        assert re.search(r'<summary><h2>Disks</h2> 1</summary>\s*<section[^>]* id="stator-disks"', page)
        assert page.index("Disks</h2>") < page.index("Cats</h2>")
        assert '<a href="/somewhere">disk</a>' in page
        assert re.search(r'class="stator-error">1 m 30 s<', page)
        assert "<script>alert" not in page


class TestHostileTexts:
    def test_are_no_markup_anywhere(self, operator: Client) -> None:
        worker(host=HOSTILE, version="<b>1</b>", models=["testapp.parcel", HOSTILE])
        failing("aa", HOSTILE, HOSTILE)
        held()
        Pause.objects.create(model_label="testapp.parcel", actor=HOSTILE, reason=HOSTILE)
        page = operator.get(PARCELS).text
        assert "<script>alert" not in page
        assert "<b>1</b>" not in page
        assert page.count("&lt;script&gt;alert(&#x27;x&#x27;)") >= 5


class TestPermissions:
    def test_who_may_not_view_the_model_sees_figures_and_no_objects(self, login: Login) -> None:
        worker()
        parcel, _ = failing(message="quotes the address"), held()
        put(Parcel, state_changed=ago(8000))
        page = login("view_overview").get(PARCELS).text
        assert "quotes the address" not in page
        assert "/admin/testapp/parcel/" not in page
        assert f"testapp.Parcel {parcel.pk}" not in page
        assert "ValueError" in page

    def test_project_leaves_objects_out_of_its_list(self, login: Login, replace: Replace) -> None:
        class Narrowed(StatorAdmin):
            def get_queryset(self, request: Any) -> Any:
                return super().get_queryset(request).exclude(address="secret")

        replace(Narrowed)
        worker()
        rows = {}
        for address in ("secret", "open"):
            rows[address] = [
                put(Parcel, address=address, state_changed=ago(8000)),
                held(address=address),
                failing(address=address, message=f"{address} message", fingerprint=address),
            ]
        client = login("view_overview", "view_parcel", "change_parcel")
        page = client.get(PARCELS).text
        for address, shown in (("secret", False), ("open", True)):
            for one in rows[address]:
                assert (f"/admin/testapp/parcel/{one.pk}/change/" in page) is shown
        assert "secret message" not in page
        assert retry(client, fingerprint="secret").status_code == 302
        assert retry(client, fingerprint="open").status_code == 302
        assert [row(rows[address][2]).state_failures for address in ("secret", "open")] == [1, 0]
