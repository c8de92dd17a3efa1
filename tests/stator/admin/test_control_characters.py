"""Nothing that is stored becomes markup."""

import re
from pathlib import Path

import pytest
from django.test import Client
from django.utils.html import escape

import stator
import stator.admin
from stator.models import History, Report
from stator.testing import attempt
from tests.stator.admin.requests import LIST, act, page_of, set_columns
from tests.testapp.operators import Letter, Parcel

pytestmark = pytest.mark.django_db


EVIL = "<script>alert(1)</script>"
# Shown as it is, "lave" reads from the right and "x" stands nowhere.
HIDDEN = "e\u202eval\u2066\x9b1m\ufeffx"
SHOWN = r"e\u202eval\u2066\x9b1m\ufeffx"


class TestEscaping:
    @pytest.mark.needs("pauses")
    @pytest.mark.parametrize(("evil", "shown"), [(EVIL, escape(EVIL)), (HIDDEN, SHOWN)], ids=["markup", "hidden"])
    def test_of_keys_states_errors_reasons_and_names(self, admin_client: Client, evil: str, shown: str) -> None:
        letter = Letter.objects.create(number=evil)
        parcel = Parcel.objects.create(orders="fail", address=evil)
        attempt(parcel)
        parcel.transition_perform("sent", actor=evil, reason=evil)
        letter.transition_perform("posted", actor=evil, reason=evil)
        set_columns(letter, state=evil)
        set_columns(parcel, state=evil)
        letters = "/admin/testapp/letter/"
        pages = [
            admin_client.get(LIST), admin_client.get(page_of(parcel)), admin_client.get(letters),
            admin_client.get(f"{LIST}{parcel.pk}/stator/"), act(admin_client, "stator_pause", parcel),
            admin_client.get(act(admin_client, "stator_unlock", letter, url=letters, stator_object="1")["Location"]),
            act(admin_client, "stator_move", parcel), act(admin_client, "stator_move", letter, url=letters),
            admin_client.get(f"{LIST}{parcel.pk}/history/"), admin_client.get(f"{LIST}{parcel.pk}/delete/"),
            admin_client.get("/admin/stator/report/"), admin_client.get("/admin/stator/history/"),
            admin_client.get(f"/admin/stator/report/{Report.objects.get().pk}/change/"),
            admin_client.get(f"/admin/stator/history/{History.objects.first().pk}/change/"),
        ]  # fmt: skip
        for page in pages:
            assert page.status_code == 200
            text = page.content.decode()
            # Reports keep texts without the characters that hide others.
            assert shown in text or (evil == HIDDEN and "/report/" in page.request["PATH_INFO"])
            # What is sent back must be as it is stored.
            assert evil not in (text if evil == EVIL else re.sub(r"<(?:input|option|button)\b[^>]*>", "", text))

    def test_saving_a_form_changes_no_character(self, admin_client: Client) -> None:
        parcel = Parcel.objects.create(address=f"{HIDDEN} שלום\u200f می‌خواهم")
        form = admin_client.get(page_of(parcel)).context["adminform"].form
        page = admin_client.get(page_of(parcel)).content.decode()
        assert f'value="{parcel.address}"' in page
        admin_client.post(page_of(parcel), {**form.initial, "_save": "Save"})
        assert Parcel.objects.get(pk=parcel.pk).address == parcel.address

    def test_nothing_is_marked_safe(self) -> None:
        for module in Path(stator.admin.__file__).parent.glob("*.py"):
            source = module.read_text()
            assert "mark_safe" not in source
        for template in (Path(stator.__file__).parent / "templates").rglob("*.*"):
            source = template.read_text()
            assert "safe" not in source
            assert "autoescape" not in source
            assert not re.search(r"<script(?! src=)|<style|\sstyle=|\son\w+=", source)
