"""The live part of the page of an object."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from stator.extensions.problems.kinds import kind_of
from stator.extensions.progress.models import keep_progress, reached
from stator.models import History, Pause, Report, Worker
from stator.rows.workers import worker_of
from stator.testing import attempt
from tests.stator.admin.conftest import Login
from tests.stator.admin.requests import LIST, act, claim, live, page_of, part
from tests.stator.making import LEASED, ago, expire, put
from tests.testapp.approvals import Expense
from tests.testapp.operators import Letter, Parcel
from tests.testapp.power import Order

pytestmark = pytest.mark.django_db


def codes(text: str) -> list[str]:
    return re.findall(r'data-stator-code="(\w+)"', text)


class TestWhy:
    @pytest.mark.needs("reports")
    @pytest.mark.needs("problems")
    def test_says_first_things_first_and_what_to_do(self, admin_client: Client) -> None:
        parcel = Parcel.objects.create(orders="fail", address="no such street")
        attempt(parcel)
        text = part(live(admin_client, parcel), "why")
        assert codes(text) == ["backoff", "no_worker"]
        assert "Backing off after 1 error, the last one ValueError: no such street" in text
        assert kind_of("backoff").remedy in text
        assert re.search(r"<dt>Next attempt</dt><dd>in \d+ s</dd>", text)

    def test_running_attempt_has_a_bar_here_and_in_the_list(self, admin_client: Client) -> None:
        held = put(Parcel, **LEASED, state_attempted=ago(90))
        Parcel.objects.create()
        said = (held.pk, held.state_claim, reached(40, 100, "page 40"))
        keep_progress("default", "testapp.parcel", [said])
        bar = '<progress max="100" value="40" aria-label="Progress"></progress>'
        text = part(live(admin_client, held), "why")
        assert bar in text
        assert "Done: 40 of 100 (40 %), page 40." in text
        listed = admin_client.get(LIST).text
        assert listed.count("<progress ") == 1
        assert "40 of 100 (40 %), page 40" in listed


class TestButtons:
    def test_offers_the_moves_of_the_graph_then_any_other(self, admin_client: Client) -> None:
        text = live(admin_client, Parcel.objects.create())
        assert re.findall(r'name="state" value="(\w*)"', text) == ["stamped", "returned", ""]

    def test_pause_that_holds_it_is_ended_from_its_page_and_from_its_list(self, login: Login) -> None:
        parcel = Parcel.objects.create()
        client = login("change_parcel")
        page = f"/admin/testapp/parcel/{parcel.pk}/change/"
        for begun_at in (page, "/admin/testapp/parcel/?state=packed"):
            Parcel.stator.pause(state="packed")
            text = client.get(begun_at).content.decode()
            form = re.search(r'<form method="post" action="([^"]*)" class="stator-end">(.*?)</form>', text, re.DOTALL)
            assert form is not None
            assert "Resume packed" in form[2]
            given = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form[2]))
            answer = client.post(form[1], given)
            # One is back where one was.
            assert (answer.status_code, answer.headers["Location"]) == (302, begun_at)
        assert not Pause.objects.active().exists()
        # That of named objects is ended by the action.
        Parcel.stator.pause(where={"pk__in": [parcel.pk]})
        assert "stator-end" not in client.get(page).content.decode()
        Parcel.stator.pause(state="packed")
        assert "stator-end" not in login("view_parcel").get(page).content.decode()

    def test_no_address_of_another_site_is_gone_back_to(self, admin_client: Client) -> None:
        parcel = Parcel.objects.create()
        answer = act(admin_client, "stator_retry", parcel, stator_back="https://example.com/")
        assert answer.headers["Location"].startswith("/admin/testapp/parcel/")


ORDERS = "/admin/testapp/order/"


class TestTimeline:
    def test_shows_moves_errors_and_manual_actions_newest_first(self, admin_client: Client) -> None:
        order = put(Order, amount=101, state="working", state_ready=True)
        attempt(order)
        order.transition_perform("waiting", actor="ada", reason="paid by card")
        for number, kept in enumerate(History.objects.order_by("-pk")):
            History.objects.filter(pk=kept.pk).update(at=ago(60 * number + 65))
        text = part(live(admin_client, order, ORDERS), "past")
        told = ["working \N{RIGHTWARDS ARROW} waiting by hand", "An attempt in working failed"]
        assert re.findall(r'stator-what">([^<]+)<', text) == told
        assert re.findall(r"by (ada|worker)", text) == ["ada", "worker"]
        assert "paid by card" in text
        assert "ValueError: unlucky" in text
        assert re.search(r"1 m \d+ s ago", text)

    @pytest.mark.needs("reports")
    def test_shows_what_an_attempt_that_did_not_move_it_said_last(self, admin_client: Client) -> None:
        order = put(Order, state="working")
        label = {"model_label": "testapp.order", "object_pk": str(order.pk)}
        Report.objects.create(**label, state="working", message="the bank is closed", times=3)
        text = " ".join(part(live(admin_client, order, ORDERS), "past").split())
        assert "An attempt in working gave a reason to wait" in text
        assert "the bank is closed" in text
        assert "3 times in a row" in text


@pytest.mark.needs("reports")
def test_event_is_named_with_its_sender_and_payload_and_is_no_move_by_hand(admin_client: Client) -> None:
    expense = Expense.objects.create()
    for name in ("anna", "ben"):
        user = User.objects.create_superuser(name)
        expense.stator.send("approve", {"note": f"ok, {name}"}, by=user, reason="in budget")
    expense.stator.send("hurry", by="cron")
    text = part(live(admin_client, expense, "/admin/testapp/expense/"), "past")
    assert re.findall(r'stator-what">([^<]+)<', text) == [
        "Event hurry in approved",
        "submitted \N{RIGHTWARDS ARROW} approved by the event approve",
        "Event approve in submitted",
    ]
    assert re.findall(r"by (anna|ben|cron)", text) == ["cron", "ben", "anna"]
    assert "{&quot;note&quot;: &quot;ok, ben&quot;, &quot;amount&quot;: null}: in budget" in text
    assert "in budget (1 of 2)" in text


def test_traceback_and_log_are_folded_and_once_and_for_users_who_may_see_them(login: Login) -> None:
    order = put(Order, amount=101, state="working", state_ready=True)
    for _ in range(2):
        attempt(order)
    Report.objects.update(log="10:00:00 INFO shop: began")
    key = {"model_label": "testapp.order", "object_pk": str(order.pk)}
    History.objects.create(**key, version=1, kind="wait", source="working", reason="not yet", log="asked")
    text, less = (live(login("view_order", *more), order, ORDERS) for more in (("view_report",), ()))
    for words, times in (("<summary>Traceback</summary>", 1), ("raise ValueError", 1), ("<summary>Log</summary>", 2)):
        assert (text.count(words), less.count(words)) == (times, 0), words
    assert "10:00:00 INFO shop: began" in text
    for shown in (text, less):
        assert "2 times in a row" in shown
        assert "An attempt in working did not move it" in shown


@pytest.mark.needs("reports")
def test_lost_lease_is_in_the_timeline_with_what_became_of_its_worker(admin_client: Client) -> None:
    order = put(Order, state="working", state_ready=True, state_next_attempt=None)
    held = claim(Order)
    worker_id, other = held.operations.worker_id, {"version": "1", "models": ["testapp.order"], "database": "default"}
    Worker.objects.create(id=worker_id, host="oak", pid=4242, **other)
    expire(order)
    held.operations.reap(10)
    text = part(live(admin_client, order, ORDERS), "past")
    assert f"worker {worker_id} (process 4242 on oak)" in text
    assert f"An attempt in {order.state} lost its lease" in text
    published = {"replaced": {"pid": 4242, "exit_code": -9}}
    for host, told in (("elm", ""), ("oak", ", exit 137, SIGKILL: out of memory?")):
        Worker.objects.create(id=host * 4, host=host, pid=1, published=published, **other)
        assert f"(process 4242 on oak{told})" in part(live(admin_client, order, ORDERS), "past")


class TestPage:
    @pytest.mark.needs("pauses")
    @pytest.mark.parametrize(
        ("given", "buttons"),
        [
            (["view_parcel"], []),
            (["change_parcel", "force_parcel"], ["stator_retry", "stator_pause", "stator_move"]),
        ],
    )
    def test_offers_what_may_be_done(self, login: Login, given: list[str], buttons: list[str]) -> None:
        text = login(*given).get(page_of(Parcel.objects.create())).content.decode()
        assert re.findall(r'name="action" value="(\w+)"', text) == buttons

    def test_an_action_leads_back_to_it(self, admin_client: Client) -> None:
        letter = Letter.objects.create(number="a/b_c")
        response = act(admin_client, "stator_retry", letter, url="/admin/testapp/letter/", stator_object="1")
        assert response["Location"] == "/admin/testapp/letter/a_2Fb_5Fc/change/"
        assert admin_client.get(response["Location"]).status_code == 200


class TestLinks:
    def test_worker_and_what_it_holds_lead_to_each_other(self, admin_client: Client) -> None:
        parcel = Parcel.objects.create()
        worker = Worker.objects.create(
            id=worker_of(claim(Parcel).token), host="web-1", pid=41, models=["testapp.parcel", "testapp.gone"]
        )
        address = f"/admin/stator/worker/{worker.pk}/change/"
        assert f'<a href="{address}">Worker {worker.pk}</a>' in admin_client.get(page_of(parcel)).content.decode()
        assert f'testapp.Parcel <a href="{page_of(parcel)}">{parcel.pk}</a> in packed' in (
            admin_client.get(address).content.decode()
        )
