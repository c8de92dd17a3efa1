"""What operators look at and do, with troubled objects of each shape of key and table: one survey shows them all."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib import admin
from django.test import Client
from django.utils.html import escape

from stator.extensions.pauses.models import pause_objects
from stator.extensions.problems.survey import problems, survey
from stator.extensions.reports.models import failure_report
from stator.graph.failures import describe
from stator.models import History, Pause, Report
from stator.rows.actions import Action
from stator.rows.keys import shown_text
from stator.rows.meta import owner_of
from stator.rows.state_column import state_name
from tests.commanding import asked, run
from tests.stator.making import LEASED, ago, raw, row
from tests.stator.overviews import worker
from tests.tasks.serving import token
from tests.testapp import keys as keyed
from tests.testapp.mails import Mail
from tests.testapp.operators import Parcel
from tests.testapp.spreading import Remark

pytestmark = pytest.mark.django_db

TEXTS = ["it's", "3,17", "(3, 17)", "a b", "100%", '"é"', "_5F"]

MAKE: dict[str, Callable[[int], Any]] = {
    "uuid": lambda number: keyed.UuidKeyed(),
    "text": lambda number: keyed.TextKeyed(slug=TEXTS[number]),
    "custom field": lambda number: keyed.CodeKeyed(code=keyed.Code(f"c{number}")),
    "one to one": lambda number: keyed.OneToOneKeyed(plain=keyed.Plain.objects.create()),
    "child of a managed parent": lambda number: keyed.Branch(leaf="x"),
    "proxy": lambda number: keyed.BigProxy(),
    "number for the state": lambda number: Mail(),
    "spread by a field": lambda number: Remark(author=f"a{number}"),
    "composite with an object": lambda number: keyed.PlaceInHall(
        hall=keyed.BigKeyed.objects.create(state="last"), number=number, door=keyed.Door.objects.create()
    ),
}


@dataclass
class Troubled:
    """One object of a shape for each trouble, and a model of another shape that has troubles, too."""

    model: Any
    failing: Any
    quarantined: Any
    stuck: Any
    held: Any
    paused: Any
    far: Any

    @property
    def all(self) -> list[Any]:
        return [self.failing, self.quarantined, self.stuck, self.held, self.paused, self.far]

    @property
    def label(self) -> str:
        return str(owner_of(self.model)._meta.label)


def key(instance: Any) -> str:
    """The key as people read and write it."""
    return ",".join(map(str, instance.pk)) if isinstance(instance.pk, tuple) else str(instance.pk)


# One survey over all shapes says as much as one over each, but for those whose states are in one table.
SURVEYS = [[name for name in MAKE if name != "proxy"], ["proxy"]]


@pytest.fixture(params=SURVEYS, ids=["each in its table", "in the table of another"])
def shapes(request: Any, monkeypatch: pytest.MonkeyPatch) -> list[Troubled]:
    found = [troubled(MAKE[name], monkeypatch) for name in request.param]
    worker(models=[*(one.label.lower() for one in found), "testapp.parcel"])
    other = raw(Parcel).create()
    raw(Parcel).filter(pk=other.pk).update(**RESTING, state_failures=1)
    return found


RESTING = {"state_ready": False, "state_next_attempt": ago(-86400)}


def troubled(make: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch) -> Troubled:
    made = []
    for number in range(6):
        made.append(make(number))
        made[-1].save(force_insert=True)
    found = Troubled(type(made[0]), *made)
    owner = owner_of(found.model)
    first = made[0].state_graph.initial_state
    monkeypatch.setattr(first, "expect_within", 86400.0)

    def change(instance: Any, **columns: Any) -> None:
        assert raw(owner).filter(pk=instance.pk).update(**columns) == 1

    change(found.failing, **RESTING, state_failures=1)
    change(found.quarantined, **RESTING, state_crashes=3)
    change(found.stuck, **RESTING, state_changed=ago(10 * 86400))
    change(found.held, **LEASED | {"state_locked_until": ago(60)})
    change(found.paused, **RESTING)
    change(found.far, state_ready=False, state_next_attempt=ago(-900 * 86400))
    for instance in (found.failing, found.quarantined):
        failure_report(found.label.lower(), instance.pk, first.name, describe(ValueError("no ink")), "").save()
    pause_objects(owner, "default", [found.paused.pk], Action.of(owner, "pause", "ops", "why"))
    return found


def codes(label: str, found: list[dict[str, Any]]) -> set[str]:
    return {one["code"] for one in found if one["model"] == label.lower()}


TROUBLES = {"failing", "quarantined", "stuck", "late_leases", "paused", "far_future"}


def test_survey_finds_them_and_those_of_other_models(shapes: list[Troubled]) -> None:
    known = survey("default", [*(owner_of(one.model) for one in shapes), Parcel])
    found = [one.as_dict() for one in problems([known])]
    groups = {one.label: {*one.failing} for one in known.groups}
    for one in shapes:
        assert codes(one.label, found) >= TROUBLES, one.label
        assert groups[one.label.lower()] == {one.failing.pk, one.quarantined.pk}
    assert codes("testapp.Parcel", found) == {"failing"}


def test_commands_list_them_under_one_text_of_the_key_and_take_it(shapes: list[Troubled]) -> None:
    found, examined = asked("stator", "status")["troubles"], run("stator", "doctor", code=1)
    failing = {one["model"] for one in asked("stator", "errors") if one["failing"] == 2}
    assert failing == {one.label for one in shapes}
    for one in shapes:
        assert codes(one.label, found) >= TROUBLES, one.label
        assert one.label in examined
        listed = {each["pk"] for each in asked("stator", "explain", one.label)["objects"]}
        assert {key(each) for each in (one.failing, one.quarantined, one.stuck, one.held)} <= listed
        assert asked("stator", "explain", one.label, key(one.far))["pk"] == key(one.far)
    for problem in found:
        if problem["code"] in ("late_leases", "far_future", "paused"):
            run(*shlex.split(problem["command"])[1:])
    assert not Pause.objects.active()
    for one in shapes:
        take_the_key(one)


def take_the_key(one: Troubled) -> None:
    retried = asked("stator", "retry", one.label, key(one.failing))
    assert (retried["retried"], retried["missing"]) == (1, [])
    assert [row(each).state_claim for each in (one.held, one.far)] == [None, None]
    assert row(one.far).state_next_attempt != one.far.state_next_attempt
    target = next(name for name in one.model.state_graph.states if name in ("last", "done", "sold", "sent"))
    keys = {key(one.failing), key(one.stuck)}
    moved = asked("stator", "move", one.label, target, "--reason", "why", *keys)
    assert (moved["moved"], state_name(row(one.stuck))) == (2, target)
    assert asked("stator", "undo", moved["action"], "--reason", "wrong")["count"] == 2  # stator.extensions.undo
    told = History.objects.filter(model_label=one.label.lower(), to=target).values_list("object_pk", flat=True)
    assert {shown_text(owner_of(one.model), text) for text in told} == keys


@pytest.mark.parametrize("shapes", SURVEYS[:1], indirect=True, ids=["each in its table"])
def test_pages_of_the_admin_show_them(shapes: list[Troubled], admin_client: Client) -> None:
    for page in ("stator/overview/", "stator/pause/"):
        answer = admin_client.get(f"/admin/{page}")
        assert answer.status_code == 200
        for one in shapes:
            assert one.label.lower() in answer.text.lower()
    for one in shapes:
        see(one, admin_client)


def see(one: Troubled, admin_client: Client) -> None:
    label, owner = one.label.lower(), owner_of(one.model)
    found = admin_client.get("/admin/stator/report/", {"q": f"{label} {key(one.failing)}"})
    assert f">{escape(key(one.failing))}<" in found.text
    one.failing.transition_perform(one.model.state_graph.initial_state.name, actor="me", reason="looked at it")
    found = admin_client.get("/admin/stator/history/", {"q": f"{label} {key(one.failing)}"})
    assert f">{escape(key(one.failing))}<" in found.text
    if not admin.site.is_registered(owner):
        return
    base = f"/admin/{owner._meta.app_label}/{owner._meta.model_name}"
    assert admin_client.get(f"{base}/", {"condition": "stuck"}).status_code == 200
    fingerprint = Report.objects.values_list("fingerprint", flat=True)[0]
    assert admin_client.get(f"{base}/", {"error": fingerprint}).status_code == 200


@pytest.mark.parametrize("shapes", SURVEYS[:1], indirect=True, ids=["each in its table"])
def test_http_takes_the_key_that_it_shows(shapes: list[Troubled], client: Client) -> None:
    allowed = {one.label.lower(): [] for one in shapes}
    headers = {"Authorization": f"Bearer {token(managed_objects=allowed)}"}
    for one in shapes:
        label, failing = one.label, key(one.failing)
        listed = client.get(f"/api/objects/{label}?limit=50", headers=headers).json()
        assert {key(each) for each in one.all} <= {each["pk"] for each in listed["objects"]}
        shown = client.get(f"/api/objects/{label}/{quote(failing, safe='')}", headers=headers).json()
        assert (shown["pk"], shown["error"]["error"]) == (failing, "ValueError")
        first = client.get(f"/api/objects/{label}?limit=2", headers=headers).json()
        url = f"/api/objects/{label}?limit=50&after={quote(first['next'], safe='')}"
        rest = client.get(url, headers=headers).json()
        parts = (*first["objects"], *rest["objects"])
        assert [each["pk"] for each in parts] == [each["pk"] for each in listed["objects"]]
