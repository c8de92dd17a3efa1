"""Pauses and workers in the admin: who may make and end a pause, what is refused, and who is shown as gone."""

import re
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.admin.utils import quote
from django.test import Client

from stator.models import Pause, Worker
from tests.stator.admin.conftest import Login
from tests.stator.making import ago
from tests.testapp.keys import TextKeyed
from tests.testapp.operators import Parcel

pytestmark = pytest.mark.django_db

LIST, ADD = "/admin/stator/pause/", "/admin/stator/pause/add/"
LABEL = "testapp.parcel"


def add(client: Client, **data: Any) -> Any:
    return client.post(ADD, {"model_label": LABEL, **data})


def end(client: Client, *pauses: Pause) -> Any:
    chosen = [pause.pk for pause in pauses]
    return client.post(LIST, {"action": "stator_end", "index": "0", "_selected_action": chosen})


def end_above(client: Client, address: str) -> Any:
    """Press the only button that ends a pause on a page."""
    forms = re.findall(r"<form.*?</form>", client.get(address).text, re.DOTALL)
    [form] = [form for form in forms if 'value="stator_end"' in form]
    return client.post(LIST, dict(re.findall(r'name="(\w+)" value="([^"]*)"', form)))


def errors(response: Any) -> list[str]:
    return [
        unescape(text) for text in re.findall(r'<ul class="errorlist[^>]*>\s*<li>(.*?)</li>', response.text, re.DOTALL)
    ]


class TestPause:
    @pytest.mark.parametrize(("given", "seconds"), [("90", 90), ("1 d 4 h", 100_800)])
    def test_duration_is_entered_as_people_write_it(self, login: Login, given: str, seconds: int) -> None:
        assert add(login("change_parcel"), seconds=given).status_code == 302
        pause = Pause.objects.get()
        assert pause.until is not None
        assert seconds - 1 < (pause.until - pause.created).total_seconds() < seconds + 1

    def test_is_made_and_ended_in_the_name_of_the_user(self, login: Login) -> None:
        parcel, client = Parcel.objects.create(address="a"), login("change_parcel")
        assert add(client, state="packed", where='{"address": "a"}', reason="strike").status_code == 302
        pause = Pause.objects.get()
        assert (pause.model_label, pause.state, pause.where, pause.until) == (LABEL, "packed", {"address": "a"}, None)
        assert (pause.reason, pause.actor, LogEntry.objects.get().object_repr) == (
            "strike", "change_parcel", str(pause),
        )  # fmt: skip
        assert parcel.explain()[0].code == "paused"
        assert "icon-yes" in client.get(LIST).text
        assert end(client, pause).status_code == 302
        assert not Pause.objects.active().exists()
        assert "icon-yes" not in client.get(LIST).text
        assert [entry.change_message for entry in LogEntry.objects.order_by("pk")][-1] == "Resumed."

    @pytest.mark.parametrize(
        ("data", "message"),
        [
            ({"where": '{"adress": "a"}'}, "does not fit testapp.Parcel: Cannot resolve keyword 'adress'"),
            ({"where": '{"pk": "\\u202e\\n"}'}, "does not fit testapp.Parcel"),
            ({"reason": "x" * 501}, "at most 500 characters"),
        ],
        ids=lambda value: str(value)[:80],
    )
    def test_that_cannot_be_meant_is_an_error_of_one_line(
        self, admin_client: Client, data: dict[str, str], message: str
    ) -> None:
        response = add(admin_client, **data)
        assert response.status_code == 200
        [error] = errors(response)
        assert message in error
        assert "\n" not in error
        assert "\u202e" not in error
        assert not Pause.objects.exists()

    def test_is_never_changed_or_deleted(self, admin_client: Client) -> None:
        add(admin_client, reason="strike")
        url = f"{LIST}{Pause.objects.get().pk}/"
        assert "strike" in admin_client.get(f"{url}change/").text
        assert admin_client.post(f"{url}change/", {"reason": "other"}).status_code == 403
        assert admin_client.post(f"{url}delete/", {"post": "yes"}).status_code == 403
        assert Pause.objects.get().reason == "strike"


class ParcelsElsewhere:
    """Puts parcels into the second database."""

    def db_for_read(self, model: type[Any], **hints: object) -> str | None:
        return "other" if model is Parcel else None

    db_for_write = db_for_read


@pytest.mark.django_db(databases=["default", "other"])
def test_pause_of_a_model_in_another_database_says_so(admin_client: Client, settings: Any) -> None:
    settings.DATABASE_ROUTERS = [ParcelsElsewhere()]
    answer = admin_client.post(ADD, {"model_label": LABEL, "_continue": "1"}, follow=True)
    assert Pause.objects.using("other").active().exists()
    assert answer.redirect_chain == [(LIST, 302)]
    [said] = [str(each) for each in answer.context["messages"]]
    assert "in database 'other', which this list does not show; resume it on the list of testapp.Parcel" in said


class TestButton:
    @pytest.mark.django_db(databases=["default", "other"])
    def test_ends_the_pause_of_a_model_in_another_database(self, admin_client: Client, settings: Any) -> None:
        settings.DATABASE_ROUTERS = [ParcelsElsewhere()]
        Pause.objects.using("default").create(pk=1, model_label="testapp.line")
        Pause.objects.using("other").create(pk=1, model_label=LABEL)
        assert end_above(admin_client, "/admin/testapp/parcel/").status_code == 302
        assert not Pause.objects.using("other").active().exists()
        assert Pause.objects.using("default").active().exists()

    @pytest.mark.needs("problems")
    @pytest.mark.parametrize("slug", ["order_24", "a/b"])
    def test_leads_back_to_the_object(self, admin_client: Client, slug: str) -> None:
        """Addresses of the admin have their own spelling of keys."""
        TextKeyed.objects.create(slug=slug)
        Pause.objects.create(model_label="testapp.textkeyed", state="first")
        answer = end_above(admin_client, f"/admin/testapp/textkeyed/{quote(slug)}/change/")
        back = admin_client.get(answer.url)
        assert (back.status_code, back.context["original"].pk) == (200, slug)
        assert not Pause.objects.active().exists()


class TestPermissions:
    def test_of_one_model_are_none_on_another(self, login: Login) -> None:
        other, gone = Pause.objects.create(model_label="testapp.line"), Pause.objects.create(model_label="gone.model")
        client = login("change_parcel")
        assert [text for text in ("testapp.line", "gone.model") if text in client.get(LIST).text] == []
        assert client.get(f"{LIST}{other.pk}/change/").status_code == 302
        assert "is not one of the" in errors(add(client, model_label="testapp.line"))[0]
        for pause in (other, gone):
            end(client, pause)
        seeing = login("change_parcel", "view_pause")
        assert "gone.model" in seeing.get(LIST).text
        for pause in (other, gone):
            assert end(seeing, pause).status_code == 403
        assert Pause.objects.active().count() == 2


class TestWorkers:
    def make(self, pk: str, beaten: float, **columns: Any) -> Worker:
        labels = columns.pop("models", [LABEL])
        return Worker.objects.create(
            id=pk, host="box", pid=7, version="1.0", models=labels, database="default",
            started=ago(500), heartbeat=ago(beaten), running=3, handled=41, lost=2, **columns,
        )  # fmt: skip
