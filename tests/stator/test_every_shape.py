"""What operators look at and do, with troubled objects of each shape of key and table: one survey shows them all."""

import shlex
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib import admin
from django.test import Client
from django.utils.html import escape

from stator.extensions.pauses.models import pause_objects
from stator.extensions.reports.models import failure_report
from stator.graph.failures import describe
from stator.models import History, Pause, Report
from stator.overview.survey import problems, survey
from stator.rows.actions import Action
from stator.rows.keys import shown_text
from stator.rows.meta import owner_of
from stator.rows.state_column import state_name
from tests.commanding import asked, run
from tests.stator.admin.overviews import worker
from tests.stator.making import LEASED, ago, raw, row
from tests.tasks.serving import token
from tests.testapp.keys import (
    BigKeyed,
    BigProxy,
    Branch,
    Code,
    CodeKeyed,
    Door,
    Heir,
    IntKeyed,
    Ledger,
    OneToOneKeyed,
    PlaceInHall,
    Plain,
    Seat,
    TextKeyed,
    UuidKeyed,
)
from tests.testapp.mails import Mail
from tests.testapp.operators import Parcel
from tests.testapp.spreading import Leaf, Remark, Sheet

pytestmark = pytest.mark.django_db

OWNER = uuid.UUID("12345678-1234-5678-1234-567812345678")
TEXTS = ["it's", "3,17", "(3, 17)", "a b", "100%", '"é"', "_5F"]

MAKE: dict[str, Callable[[int], Any]] = {
    "int": lambda number: IntKeyed(),
    "uuid": lambda number: UuidKeyed(),
    "text": lambda number: TextKeyed(slug=TEXTS[number]),
    "custom field": lambda number: CodeKeyed(code=Code(f"c{number}")),
    "one to one": lambda number: OneToOneKeyed(plain=Plain.objects.create()),
    "child of a plain parent": lambda number: Heir(title="x"),
    "child of a managed parent": lambda number: Branch(leaf="x"),
    "proxy": lambda number: BigProxy(),
    "number for the state": lambda number: Mail(),
    "spread": lambda number: Sheet(),
    "spread and numbered": lambda number: Leaf(),
    "spread by a field": lambda number: Remark(author=f"a{number}"),
    "composite": lambda number: Seat(hall=3, number=17 + number),
    "composite with a uuid": lambda number: Ledger(owner=OWNER, number=number),
    "composite with an object": lambda number: PlaceInHall(
        hall=BigKeyed.objects.create(state="last"), number=number, door=Door.objects.create()
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


@pytest.fixture(params=MAKE)
def troubled(request: Any, monkeypatch: pytest.MonkeyPatch) -> Troubled:
    made = []
    for number in range(6):
        made.append(MAKE[request.param](number))
        made[-1].save(force_insert=True)
    found = Troubled(type(made[0]), *made)
    owner = owner_of(found.model)
    first = made[0].state_graph.initial_state
    monkeypatch.setattr(first, "expect_within", 86400.0)

    def change(instance: Any, **columns: Any) -> None:
        assert raw(owner).filter(pk=instance.pk).update(**columns) == 1

    resting = {"state_ready": False, "state_next_attempt": ago(-60)}
    change(found.failing, **resting, state_failures=1)
    change(found.quarantined, **resting, state_crashes=3)
    change(found.stuck, **resting, state_changed=ago(10 * 86400))
    change(found.held, **LEASED | {"state_locked_until": ago(60)})
    change(found.paused, **resting)
    change(found.far, state_ready=False, state_next_attempt=ago(-900 * 86400))
    label = owner._meta.label_lower
    for instance in (found.failing, found.quarantined):
        failure_report(label, instance.pk, first.name, describe(ValueError("no ink")), "").save()
    pause_objects(owner, "default", [found.paused.pk], Action.of(owner, "pause", "ops", "why"))
    worker(models=[label, "testapp.parcel"])
    other = raw(Parcel).create()
    raw(Parcel).filter(pk=other.pk).update(**resting, state_failures=1)
    return found


def codes(label: str, found: list[dict[str, Any]]) -> set[str]:
    return {one["code"] for one in found if one["model"] == label.lower()}


TROUBLES = {"failing", "quarantined", "stuck", "late_leases", "paused", "far_future"}


def test_survey_finds_them_and_those_of_other_models(troubled: Troubled) -> None:
    known = survey("default", [owner_of(troubled.model), Parcel])
    found = [one.as_dict() for one in problems([known])]
    assert TROUBLES <= codes(troubled.label, found)
    [group] = [one for one in known.groups if one.label == troubled.label.lower()]
    assert {*group.failing} == {troubled.failing.pk, troubled.quarantined.pk}
    assert codes("testapp.Parcel", found) == {"failing"}


def test_commands_list_them_under_one_text_of_the_key(troubled: Troubled) -> None:
    label = troubled.label
    assert TROUBLES <= codes(label, asked("stator", "status", label)["troubles"])
    assert label in run("stator", "doctor", code=1)
    assert {one["model"] for one in asked("stator", "errors") if one["failing"] == 2} == {label}
    listed = asked("stator", "explain", label)
    named = {one["pk"] for one in listed["objects"]}
    assert {key(one) for one in (troubled.failing, troubled.quarantined, troubled.stuck, troubled.held)} <= named
    assert key(troubled.failing) in run("stator", "explain", label)
    for one in troubled.all:
        assert asked("stator", "explain", label, key(one))["pk"] == key(one)


def test_commands_take_the_key_that_they_show(troubled: Troubled) -> None:
    label, failing = troubled.label, key(troubled.failing)
    retried = asked("stator", "retry", label, failing)
    assert (retried["retried"], retried["missing"]) == (1, [])
    for problem in asked("stator", "status", label)["troubles"]:
        if problem["code"] in ("late_leases", "far_future", "paused") and problem["model"] == label.lower():
            run(*shlex.split(problem["command"])[1:])
    assert [row(one).state_claim for one in (troubled.held, troubled.far)] == [None, None]
    assert row(troubled.far).state_next_attempt != troubled.far.state_next_attempt
    assert not Pause.objects.active()
    target = next(name for name in troubled.model.state_graph.states if name in ("last", "done", "sold", "sent"))
    moved = asked("stator", "move", label, target, "--reason", "why", failing, key(troubled.stuck))
    assert (moved["moved"], state_name(row(troubled.stuck))) == (2, target)
    assert asked("stator", "undo", moved["action"], "--reason", "wrong")["count"] == 2
    told = History.objects.filter(to=target).values_list("object_pk", flat=True)
    assert {shown_text(owner_of(troubled.model), text) for text in told} == {failing, key(troubled.stuck)}


def test_metrics_count_them(troubled: Troubled, client: Client, settings: Any) -> None:
    secret = "a-token-of-at-least-thirty-two-bytes"
    settings.STATOR = {**settings.STATOR, "TOKEN": secret}
    told = client.get("/stator/metrics/", headers={"Authorization": f"Bearer {secret}"}).text
    label = troubled.label.lower()
    for line in (f'stator_quarantined{{model="{label}"}} 1.0', f'stator_late_leases{{model="{label}"}} 1.0'):
        assert line in told
    for code in TROUBLES:
        assert f'stator_troubles{{code="{code}",level=' in told


def test_pages_of_the_admin_show_them(troubled: Troubled, admin_client: Client) -> None:
    label, owner = troubled.label.lower(), owner_of(troubled.model)
    for page in ("stator/overview/", "stator/pause/", f"stator/report/?q={quote(f'{label} {key(troubled.failing)}')}"):
        answer = admin_client.get(f"/admin/{page}")
        assert answer.status_code == 200
        assert label in answer.text.lower()
    troubled.failing.transition_perform(
        troubled.model.state_graph.initial_state.name, actor="me", reason="looked at it"
    )
    for kept in ("history", "report"):
        found = admin_client.get(f"/admin/stator/{kept}/", {"q": f"{label} {key(troubled.failing)}"})
        assert f">{escape(key(troubled.failing))}<" in found.text
    if not admin.site.is_registered(owner):
        return
    base = f"/admin/{owner._meta.app_label}/{owner._meta.model_name}"
    for condition in ("failing", "quarantined", "stuck", "leased", "overdue"):
        assert admin_client.get(f"{base}/", {"condition": condition}).status_code == 200
    fingerprint = Report.objects.values_list("fingerprint", flat=True)[0]
    assert admin_client.get(f"{base}/", {"error": fingerprint}).status_code == 200


def test_http_takes_the_key_that_it_shows(troubled: Troubled, client: Client) -> None:
    label, headers = troubled.label, {"Authorization": f"Bearer {token(managed_objects={troubled.label.lower(): []})}"}
    listed = client.get(f"/api/objects/{label}?limit=50", headers=headers).json()
    named = {one["pk"] for one in listed["objects"]}
    assert {key(one) for one in troubled.all} <= named
    shown = client.get(f"/api/objects/{label}/{quote(key(troubled.failing), safe='')}", headers=headers).json()
    assert (shown["pk"], shown["error"]["error"]) == (key(troubled.failing), "ValueError")
    first = client.get(f"/api/objects/{label}?limit=2", headers=headers).json()
    rest = client.get(f"/api/objects/{label}?limit=50&after={quote(first['next'], safe='')}", headers=headers).json()
    assert [one["pk"] for one in (*first["objects"], *rest["objects"])] == [one["pk"] for one in listed["objects"]]
