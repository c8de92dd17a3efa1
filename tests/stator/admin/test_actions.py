"""The actions on objects: one table of who may, what each asks, says and does; and that it acts on what was shown."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from django.contrib import admin
from django.test import Client

from stator.admin import StatorAdmin, actions, confirmed_snapshot
from stator.models import Action, History, Pause, Worker
from stator.rows import columns
from stator.rows.workers import worker_of
from tests.stator.admin.conftest import Login, Replace
from tests.stator.admin.requests import LIST, MOVE, act, claim, move, seen_in, set_columns
from tests.stator.making import LEASED, put, row
from tests.testapp.approvals import Expense
from tests.testapp.operators import Parcel, ParcelGraph

pytestmark = pytest.mark.django_db

FAILING = {"state_ready": False, "state_failures": 2}


@dataclass(frozen=True)
class Verb:
    """An action on one object with these columns, and what is so afterwards.

    ``needs``: the permission. ``asks``: the fields of the page that comes first, if one does. ``given``: what is filled
    in there. ``wrong``: what is filled in instead, and the line about it. ``kept``: where user and reason are stored.
    """

    needs: str
    said: str
    became: Callable[[Any], bool]
    kept: Any
    reason: str
    asks: tuple[str, ...] = ()
    given: dict[str, str] = field(default_factory=dict)
    wrong: tuple[dict[str, str], str] | None = None
    columns: dict[str, Any] = field(default_factory=dict)
    before: Callable[[Any], object] = lambda parcel: None
    model: Any = Parcel


def is_paused(parcel: Any) -> bool:
    return bool(parcel.explain()[0].code == "paused")


def is_due(parcel: Any) -> bool:
    return bool(parcel.state_ready and not parcel.state_failures)


OF_PAUSES = {
    "stator_pause": Verb(
        "change", "1 parcel paused.", is_paused, Pause, "stop it", ("seconds", "reason"),
        {"seconds": "10 m", "reason": "stop it"}, ({"seconds": "0"}, "Give a duration above 0"),
    ),
    "stator_resume": Verb(
        "change", "1 parcel resumed.", lambda one: not is_paused(one), None, "",
        before=lambda parcel: Parcel.stator.pause(where={"pk__in": [parcel.pk]}),
    ),
}  # fmt: skip
OF_EVENTS = {
    "stator_send": Verb(
        "change", "1 expense got reject", lambda one: one.state == "rejected", History, 'reject {"why": "late"}: no',
        ("payload", "stator_reason"), {"payload": '{"why": "late"}', "stator_reason": "no"},
        ({"payload": "{"}, "Enter a valid JSON"), model=Expense,
    ),
}  # fmt: skip
UNLOCKING = (
    "reason",
    "stator_and_pause",  # stator.extensions.pauses
)
VERBS = {
    "stator_retry": Verb("change", "1 parcel is due now.", is_due, History, "retried", columns=FAILING),
    "stator_release": Verb(
        "change", "1 parcel released from quarantine and due now.",
        lambda one: not Parcel.stator.quarantined().exists(), History, "retried",
        columns={**FAILING, "state_crashes": 3},
    ),
    "stator_unlock": Verb(
        "change", "1 parcel unlocked.", lambda one: one.state_claim is None, Action, "runs wild",
        UNLOCKING, {"reason": "runs wild"}, ({"reason": "x" * 501}, "at most 500 characters"),
        columns=LEASED,
    ),
    "stator_move": Verb(
        "force", "1 parcel moved to delivered.", lambda one: one.state == "delivered", History, "because",
        ("state", "reason", "start_over"), {"state": "delivered", "reason": "because"},
        ({"state": "nowhere"}, "nowhere is not a state to which objects can be moved by hand."),
    ),
    **OF_PAUSES,  # stator.extensions.pauses
    **OF_EVENTS,  # stator.extensions.events
}  # fmt: skip
# Pauses are ended in tests/stator/extensions/pauses, by the roles of test_access.py.
ELSEWHERE = {
    "stator_end",  # stator.extensions.pauses
}
# Which event is sent, on the page that comes first and afterwards.
SENT = {"stator_event": "reject", "stator_asked": "reject"}


def test_each_action_is_here() -> None:
    ours = [one for one in admin.site._registry.values() if one.model._meta.app_label in ("testapp", "stator")]
    assert {act.__name__ for one in ours for act in one.actions or ()} == {*VERBS, *ELSEWHERE}
    assert "stator_send" not in [act.__name__ for act in admin.site.get_model_admin(Parcel).actions]


def made(verb: Verb) -> Any:
    found = put(verb.model, **verb.columns)
    verb.before(found)
    return found


def ask(client: Client, name: str, found: Any, **data: str) -> Any:
    label = found._meta.model_name
    sent = SENT if name == "stator_send" else {}
    return act(client, name, found, url=f"/admin/testapp/{label}/", **sent, **data)


@pytest.mark.parametrize("name", VERBS)
def test_action_is_refused_to_who_lacks_its_permission(login: Login, client: Client, name: str) -> None:
    verb = VERBS[name]
    found, label = made(verb), verb.model._meta.model_name

    def stored() -> Any:
        return [
            vars(row(found)) | {"_state": None},
            Pause.objects.active().count(),  # stator.extensions.pauses
        ]

    before = stored()
    for other in {"view", "change", "force"} - {verb.needs}:
        assert ask(login(*{f"view_{label}", f"{other}_{label}"}), name, found).status_code == 403, other
    assert ask(login(f"view_{label}", f"{verb.needs}_{label}", csrf=True), name, found).status_code == 403
    assert ask(client, name, found)["Location"].startswith("/admin/login/")
    assert stored() == before


@pytest.mark.parametrize("name", VERBS)
def test_action_asks_and_acts_in_the_name_of_the_user(login: Login, name: str) -> None:
    verb = VERBS[name]
    found, label = made(verb), verb.model._meta.model_name
    client = login(f"view_{label}", f"{verb.needs}_{label}")
    answer = ask(client, name, found)
    if verb.asks:
        text, seen = answer.content.decode(), {"stator_confirmed": "1", "stator_seen": seen_in(answer)}
        assert [each for each in verb.asks if f'name="{each}"' not in text] == []
        wrong, line = verb.wrong or ({}, "")
        again = ask(client, name, found, **{**verb.given, **wrong}, **seen)
        assert (again.status_code, line in again.content.decode()) == (200, True)
        assert not verb.became(row(found))
        answer = ask(client, name, found, **verb.given, **seen)
    assert answer.status_code == 302
    assert verb.said in client.get(answer["Location"]).content.decode()
    assert verb.became(row(found))
    if verb.kept:
        kept = verb.kept.objects.order_by("-pk").values_list("actor", "reason")[0]
        assert kept == (f"view_{label}+{verb.needs}_{label}", verb.reason)


def test_page_before_a_move_names_what_is_moved(admin_client: Client) -> None:
    parcels = [Parcel.objects.create(address=f"no. {number}") for number in range(2)]
    held = claim(Parcel)
    # The action that was chosen below the list.
    data = {"action": ["stator_retry", "stator_move"], "index": "1", "_selected_action": [one.pk for one in parcels]}
    text = admin_client.post(LIST, data).content.decode()
    assert "2 parcels will be moved by hand" in text
    assert "1 of them is being attempted at the moment" in text
    assert all(f"parcel to no. {number} (packed)" in text for number in range(2))
    move(admin_client, *parcels)
    assert not held.still_mine()


def test_states_that_only_the_framework_enters_are_not_offered_and_refused(
    admin_client: Client, monkeypatch: Any
) -> None:
    monkeypatch.setattr(ParcelGraph.delivered, "enter_by_hand", False)
    parcel = Parcel.objects.create()
    names = [name for name in Parcel.state_graph.states if name != "delivered"]
    asked = act(admin_client, "stator_move", parcel).content.decode()
    assert re.findall(r'<option value="(\w*)"', asked) == ["", *names]
    told = move(admin_client, parcel).content.decode()
    assert "delivered is not a state to which objects can be moved by hand. Choose packed or" in told
    parcel.refresh_from_db()
    assert parcel.state == "packed"
    assert not History.objects.exists()


def test_rows_that_the_project_hides_cannot_be_reached(admin_client: Client, replace: Replace) -> None:
    class Hiding(StatorAdmin):
        def get_queryset(self, request: Any) -> Any:
            return super().get_queryset(request).exclude(address="secret")

    replace(Hiding)
    secret, other = Parcel.objects.create(address="secret"), Parcel.objects.create()
    assert admin_client.get(f"{LIST}{secret.pk}/stator/").status_code == 404
    for name in ("stator_retry", "stator_unlock", "stator_move"):
        act(admin_client, name, secret, other)
    move(admin_client, secret, other, select_across="1")
    secret.refresh_from_db()
    other.refresh_from_db()
    assert (secret.state, other.state) == ("packed", "delivered")


def test_a_project_may_have_actions_of_its_own_or_none() -> None:
    def hello(model_admin: Any, request: Any, queryset: Any) -> None: ...

    class WithActions(StatorAdmin):
        actions = [hello]

    class Without(StatorAdmin):
        actions = None

    site = admin.AdminSite()
    assert WithActions(Parcel, site).actions == [hello, *actions.ACTIONS]
    assert Without(Parcel, site).actions is None
    assert StatorAdmin.actions == ()


@pytest.mark.needs("pauses")
def test_live_worker_is_told_before_and_unlocked_and_paused_no_worker_claims_it(admin_client: Client) -> None:
    parcel = Parcel.objects.create()
    held = claim(Parcel)
    Worker.objects.create(id=worker_of(held.token), host="web-1", pid=41, models=["testapp.parcel"])
    asked = act(admin_client, "stator_unlock", parcel)
    text = asked.content.decode()
    assert re.search(rf"{parcel.pk}: attempt 1, which began \d+ s ago, is run by worker", text)
    assert "on web-1, process 41, which is alive; its lease has" in text
    assert held.still_mine()
    told = unlocked(admin_client, asked, parcel, stator_and_pause="1", reason="runs wild")
    assert "1 parcel unlocked and paused." in told
    assert not held.still_mine()
    pause = Pause.objects.active().get()
    assert (pause.where, pause.reason, pause.actor) == ({"pk__in": [parcel.pk]}, "runs wild", "admin")
    # Not even by a worker that has not read the pause.
    assert not Parcel.stator.ready().exists()
    assert row(parcel).state_next_attempt is not None


def unlocked(client: Client, asked: object, parcel: Parcel, **data: str) -> str:
    seen = {"stator_confirmed": "1", "stator_seen": seen_in(asked)}
    answer = act(client, "stator_unlock", parcel, **seen, **data)
    return client.get(answer["Location"]).content.decode()


def test_claim_of_another_worker_since_is_left_alone(admin_client: Client) -> None:
    parcel = Parcel.objects.create()
    claim(Parcel)
    asked = act(admin_client, "stator_unlock", parcel)
    Parcel.stator.unlock()
    later = claim(Parcel)
    told = unlocked(admin_client, asked, parcel)
    assert f"0 parcels unlocked. 1 parcel was not changed (since you were asked: {parcel.pk} was claimed anew)" in told
    assert later.still_mine()


def test_worker_that_stopped_and_whose_lease_is_over_is_not_asked_about(admin_client: Client) -> None:
    parcel = Parcel.objects.create()
    held = claim(Parcel)
    Worker.objects.create(id=worker_of(held.token), host="web-1", pid=41, stopped=columns.after(-60))
    set_columns(parcel, state_locked_until=columns.after(-10))
    assert act(admin_client, "stator_unlock", parcel).status_code == 302
    assert not held.still_mine()


# A confirmation acts only on rows that are still as they were shown, and tells which were left alone


def confirmed(client: Client, asked: Any, *parcels: Parcel, url: str = LIST, **data: str) -> str:
    """Confirm what was asked, and return what the next page says."""
    chosen = {**MOVE, "_selected_action": [parcel.pk for parcel in parcels], "stator_seen": seen_in(asked), **data}
    return client.post(url, chosen, follow=True).content.decode()


def test_object_that_moved_since_it_was_shown_or_is_gone_is_left_alone_and_named(admin_client: Client) -> None:
    (one, other, gone), url = (Parcel.objects.create() for _ in range(3)), f"{LIST}?state__exact=packed"
    pk = gone.pk
    asked = act(admin_client, "stator_move", one, other, gone, url=url)
    one.transition_perform("sent", actor="bob")
    gone.delete()
    gone.pk = pk
    told = confirmed(admin_client, asked, one, other, gone, url=url)
    assert (row(one).state, row(other).state) == ("sent", "delivered")
    assert "1 parcel moved to delivered. 2 parcels were not changed" in told
    named = re.search(r"\(since you were asked: (.*?)\)", told)[1]
    assert set(named.split(", ")) == {f"{one.pk} is in sent now", f"{pk} is gone"}


def test_claim_in_between_is_no_move(admin_client: Client) -> None:
    parcel = Parcel.objects.create()
    asked = act(admin_client, "stator_move", parcel)
    claim(Parcel)
    confirmed(admin_client, asked, parcel)
    assert row(parcel).state == "delivered"


@pytest.mark.parametrize("exact", [0, 1000])
def test_all_rows_of_a_filter_are_those_that_were_shown(
    admin_client: Client, monkeypatch: pytest.MonkeyPatch, exact: int
) -> None:
    monkeypatch.setattr(confirmed_snapshot, "EXACT", exact)
    one, other = Parcel.objects.create(), Parcel.objects.create()
    asked = act(admin_client, "stator_move", url=LIST, select_across="1", _selected_action="0")
    one.transition_perform("sent")
    later = Parcel.objects.create()
    told = confirmed(admin_client, asked, select_across="1", _selected_action="0")
    assert [row(each).state for each in (one, other, later)] == ["sent", "delivered", "packed"]
    assert "1 parcel moved to delivered." in told
    assert "not changed" in told


@pytest.mark.parametrize("text", ["", '{"rows": {"1": 3}}', "[" * 9999], ids=range(3))
def test_what_says_not_what_was_shown_is_asked_again(admin_client: Client, text: str) -> None:
    parcel = Parcel.objects.create()
    posted = {**MOVE, "_selected_action": [parcel.pk], "stator_seen": text}
    answer = admin_client.post(LIST, posted)
    assert answer.status_code == 200
    assert "will be moved by hand" in answer.content.decode()
    assert row(parcel).state == "packed"
