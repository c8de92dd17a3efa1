"""Checks of a managed model: its state field, primary key, indexes, waits and saved fields."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.apps import apps
from django.contrib.admin import AdminSite
from django.db import models
from django.test.utils import isolate_apps

from stator.admin import register_managed
from stator.checks import every as checks
from stator.checks.tables import (
    check_indexes,
    check_model,
    check_spread,
)
from stator.graph import State, StateGraph
from stator.models import StateField, StatorModel
from tests.stator.making import model_of
from tests.testapp.keys import BigKeyed, Branch, Heir, Ledger, Seat
from tests.testapp.mails import Postcard
from tests.testapp.operators import Parcel, ParcelGraph


def ids(found: Any) -> list[str]:
    return [message.id for message in found]


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """Models of the test stay out of the registry of apps."""
    with isolate_apps("tests.testapp"):
        yield


def state(graph: Any = ParcelGraph) -> StateField:
    return StateField(graph)


def saving(name: str) -> Any:
    class SavingGraph(StateGraph):
        new = State(try_interval=1, saves=["note", name])
        done = State()
        new.transitions_to(done)

        @classmethod
        def handle_new(cls, instance: Any) -> None: ...

    given = {"note": models.TextField(), "links": models.ManyToManyField("self")}
    return model_of("Own", state=state(SavingGraph), **given)


def composite() -> Any:
    key = {"left": models.IntegerField(), "right": models.CharField(max_length=9)}
    return model_of("Pair", pk=models.CompositePrimaryKey(*key), **key, state=state())


# Models, the code of what is wrong, and what is said of it with a part of the hint.
WRONG: list[tuple[Any, str, str, str]] = [
    (lambda: model_of("Own"), "E101", "Own inherits StatorModel, but it has no StateField.", "under any name"),
    (lambda: model_of("Own", state=models.CharField(max_length=9)), "E101", "", ""),
    (
        lambda: model_of("Own", state=state(), billing=state()), "E106",
        "Own.billing is a StateField beside Own.state; an object has one state.", "model of its own",
    ),
    (
        lambda: model_of("Own", status=state(), state_ready=models.CharField(max_length=10)), "E112",
        "Own.state_ready is not the column of Stator with this name, which workers write.", "migrations.RenameField",
    ),
    (lambda: model_of("Own", status=state(), state_attempts=None), "E112", "Own.state_attempts is not the column", ""),
    (
        lambda: Branch, "W104",
        "Branch inherits its state from BigKeyed: workers attempt its objects as objects of BigKeyed.",
        "OneToOneField",
    ),
    (
        lambda: model_of("Leaf", BigKeyed, options={"history": True}), "E108",
        "Leaf.StatorMeta has no effect: the state of Leaf is that of BigKeyed.", "Move its options to BigKeyed.Stator",
    ),
    (
        lambda: model_of("Own", state=state(), tenant=models.IntegerField(), options={"spread": "tenants"}), "W106",
        "so Stator adds a column. Did you mean 'tenant'?", "",
    ),
    (composite, "E102", "with a column that is neither an integer nor a UUID", ""),
    (
        lambda: model_of("Own", key=models.CharField(max_length=256, primary_key=True), state=state()), "E103",
        "Own has a primary key of up to 256 characters; reports and history store at most 255 of them.", "",
    ),
    (
        lambda: model_of("Own", key=models.TextField(primary_key=True), state=state()), "E103",
        "Own has a primary key of any length; reports", "",
    ),
    (
        lambda: model_of("Own", long=long_reference(), state=state()), "E103",
        "Own has a primary key of up to 256 characters", "",
    ),
    *(
        (lambda own=own: saving(own), "E105", f"SavingGraph.new saves {own!r}; Own has no such column to save.", "")
        for own in ("nothing", "state_ready", "id", "state", "links")
    ),
]  # fmt: skip


def long_reference() -> Any:
    long = model_of("Long", key=models.CharField(max_length=256, primary_key=True), state=state())
    return models.OneToOneField(long, models.CASCADE, primary_key=True)


@pytest.mark.parametrize(("make", "code", "said", "hint"), WRONG)
def test_model_that_workers_cannot_serve_is_told_with_what_to_do(make: Any, code: str, said: str, hint: str) -> None:
    [found] = [message for message in check_model(make()) if message.id == f"stator.{code}"]
    assert said in found.msg
    assert hint in (found.hint or "")


def test_other_models_are_right() -> None:
    # Which have a field ``state`` for something else, a composite key of numbers, or a parent.
    assert [ids(check_model(model)) for model in (Parcel, Postcard, BigKeyed, Heir, Seat, Ledger)] == [[]] * 6


def test_a_state_field_of_a_plain_model_is_refused() -> None:
    plain = model_of("Plain", models.Model, state=state())
    below, proxy = model_of("Below", plain), model_of("Proxy", plain, meta={"proxy": True})
    config: Any = SimpleNamespace(get_models=lambda: [plain, below, proxy])
    [error] = checks.model_checks([config])
    assert (error.id, error.obj) == ("stator.E107", plain)
    assert error.msg == "Plain.state is a StateField, but Plain does not inherit StatorModel: nothing moves it."
    assert error.hint == "Let Plain inherit stator.models.StatorModel, or make state a CharField."


def test_the_admin_takes_no_model_with_a_composite_key_so_the_check_can_be_read() -> None:
    pair = composite()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StatorModel, "subclasses", [pair])
        register_managed(site := AdminSite())
    assert not site.is_registered(pair)
    # Django's own checks say nothing of our indexes.
    assert [*ids(check_model(pair)), *ids(pair.check())] == ["stator.E102"]


@pytest.mark.parametrize(
    ("field", "name", "wrong"),
    [
        (models.ForeignKey("testapp.Parcel", models.CASCADE, null=True), "owner", "may be null, and a row without"),
        (models.ForeignKey(Parcel, models.CASCADE, related_name="+"), "owner_id", ""),
        (models.DateField(), "owner", "is a DateField; it must be an integer, a UUID or a CharField, or refer to"),
        (models.TextField(), "owner", "is a TextField; it must be"),
        (models.CharField(max_length=9), "owner", ""),
        (models.UUIDField(primary_key=True), "owner", "is the primary key, so each value would have one row"),
    ],
)
def test_a_table_is_spread_by_a_field_that_each_row_has(field: Any, name: str, wrong: str) -> None:
    found = list(check_spread(model_of("Spread", state=state(), owner=field, options={"spread": name})))
    assert ids(found) == ["stator.E111"] * bool(wrong)
    assert all(f"Spread.StatorMeta.spread={name!r} {wrong}" in each.msg for each in found)


def test_lost_indexes_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ids(check_indexes(Parcel)) == []
    monkeypatch.setattr(Parcel._meta, "indexes", Parcel._meta.indexes[1:])
    [warning] = check_indexes(Parcel)
    assert warning.id == "stator.W103"
    assert "st_ready_" in warning.msg


def test_checks_are_run_for_the_apps_that_are_asked_about() -> None:
    assert Parcel in checks.managed_models([apps.get_app_config("testapp")])
    assert checks.managed_models([apps.get_app_config("auth")]) == []
