"""The timeline of a row on its page."""

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from stator.models import History, Report, Worker
from stator.testing import attempt
from tests.stator.admin.conftest import Login
from tests.stator.admin.requests import claim, live, part, set_columns
from tests.stator.making import ago, expire, put
from tests.testapp.approvals import Expense
from tests.testapp.operators import Parcel
from tests.testapp.power import Order

pytestmark = pytest.mark.django_db

ORDERS = "/admin/testapp/order/"


class TestTimeline:
    def test_shows_moves_errors_and_manual_actions_newest_first(self, admin_client: Client) -> None:
        order = Order.objects.create(amount=101)
        set_columns(order, state="working")
        order.refresh_from_db()
        attempt(order)
        order.transition_perform("waiting", actor="ada", reason="paid by card")
        Order.objects.filter(pk=order.pk).update(amount=1)
        set_columns(order, state="working")
        order.refresh_from_db()
        attempt(order)
        History.objects.update(at=ago(60))
        for number, act in enumerate(History.objects.order_by("-pk")):
            History.objects.filter(pk=act.pk).update(at=ago(60 * number + 5))
        text = part(live(admin_client, order, ORDERS), "past")
        assert re.findall(r'stator-what">([^<]+)<', text) == [
            "working \N{RIGHTWARDS ARROW} shipped",
            "working \N{RIGHTWARDS ARROW} waiting by hand",
            "An attempt in working failed",
        ]
        assert re.findall(r"by (ada|worker)", text) == ["worker", "ada", "worker"]
        assert "paid by card" in text
        assert "ValueError: unlucky" in text
        assert re.search(r"attempt 1, took \d+ ms", text)
        assert re.search(r"1 m \d+ s ago", text)
        assert "StatorMeta.history" not in text

    def test_says_what_is_not_kept(self, admin_client: Client) -> None:
        text = part(live(admin_client, Parcel.objects.create()), "past")
        assert "No event is recorded yet" in text
        assert "StatorMeta.history" in text

    def test_traceback_is_folded_and_once(self, login: Login) -> None:
        order = Order.objects.create(amount=101)
        set_columns(order, state="working")
        order.refresh_from_db()
        for _ in range(2):
            attempt(order)
        text = live(login("view_order", "view_report"), order, ORDERS)
        assert text.count("<summary>Traceback</summary>") == 1
        assert text.count("raise ValueError") == 1
        assert "2 times in a row" in text
        assert "raise ValueError" not in live(login("view_order"), order, ORDERS)


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


def test_log_of_an_attempt_is_below_its_error_for_users_who_may_see_tracebacks(login: Login) -> None:
    order = put(Order, state="working", state_failures=1)
    key = {"model_label": "testapp.order", "object_pk": str(order.pk)}
    Report.objects.create(
        **key, state="working", error="ValueError", fingerprint="aa", message="no", log="10:00:00 INFO shop: began"
    )
    History.objects.create(**key, version=1, kind="wait", source="working", reason="not yet", log="asked")
    text = live(login("view_order", "view_report"), order, ORDERS)
    assert text.count("<summary>Log</summary>") == 2
    assert "10:00:00 INFO shop: began" in text
    assert "An attempt in working did not move it" in text
    assert "<summary>Log</summary>" not in live(login("view_order"), order, ORDERS)


def test_lost_lease_is_in_the_timeline_with_host_and_process_of_the_worker(admin_client: Client) -> None:
    order = put(Order, state="working", state_ready=True, state_next_attempt=None)
    held = claim(Order)
    worker_id = held.operations.worker_id
    Worker.objects.create(id=worker_id, host="oak", pid=4242, version="1", models=["testapp.order"], database="default")
    expire(order)
    held.operations.reap(10)
    text = part(live(admin_client, order, ORDERS), "past")
    assert f"worker {worker_id} (process 4242 on oak)" in text
    assert f"An attempt in {order.state} lost its lease" in text
    published = {"replaced": {"pid": 4242, "exit_code": -9}}
    other = {"version": "1", "models": [], "database": "default"}
    Worker.objects.create(id="b" * 12, host="elm", pid=1, published=published, **other)
    assert "(process 4242 on oak)" in part(live(admin_client, order, ORDERS), "past")
    Worker.objects.create(id="c" * 12, host="oak", pid=4243, published=published, **other)
    text = part(live(admin_client, order, ORDERS), "past")
    assert f"worker {worker_id} (process 4242 on oak, exit 137, SIGKILL: out of memory?)" in text
    Worker.objects.all().delete()
    assert f"worker {worker_id}" in part(live(admin_client, order, ORDERS), "past")
