"""Checks of a managed model: its state field, primary key, indexes, waits and saved fields."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.apps import apps
from django.contrib.admin import AdminSite
from django.db import models
from django.test.utils import isolate_apps

from stator import checks
from stator.admin import register_managed
from stator.checks.tables import (
    check_columns,
    check_indexes,
    check_key_length,
    check_model,
    check_parents,
    check_primary_key,
    check_saved_fields,
    check_spread,
    check_state_field,
    check_state_fields,
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


def test_a_managed_model_has_a_state() -> None:
    without, plain = model_of("Without"), model_of("Plain", state=models.CharField(max_length=10))
    [missing], [wrong] = check_state_field(without), check_state_field(plain)
    assert (missing.id, wrong.id) == ("stator.E101", "stator.E101")
    assert missing.msg == "Without inherits StatorModel, but it has no StateField."
    assert "StateField(YourGraph), under any name" in missing.hint
    assert ids(check_state_field(Parcel)) == []
    # Which has a field ``state`` for something else.
    assert ids(check_model(Postcard)) == []


def test_state_fields_beside_the_state_are_refused() -> None:
    twice = model_of("Twice", state=state(), billing=state())
    [error] = check_state_fields(twice)
    assert error.id == "stator.E106"
    assert error.msg == "Twice.billing is a StateField beside Twice.state; an object has one state."
    assert "model of its own" in error.hint
    assert "stator.E106" in ids(check_model(twice))
    assert ids(check_state_fields(Parcel)) == []


def test_a_field_in_the_place_of_a_column_of_stator_is_refused() -> None:
    given = {"state_ready": models.CharField(max_length=10), "state_attempts": None}
    attempts, ready = check_columns(model_of("Taken", status=state(), **given))
    assert (attempts.id, ready.id) == ("stator.E112", "stator.E112")
    assert ready.msg == "Taken.state_ready is not the column of Stator with this name, which workers write."
    assert "migrations.RenameField" in ready.hint
    assert ids(check_columns(Parcel)) == []


def test_a_state_field_of_a_plain_model_is_refused() -> None:
    plain = model_of("Plain", models.Model, state=state())
    below, proxy = model_of("Below", plain), model_of("Proxy", plain, meta={"proxy": True})
    config: Any = SimpleNamespace(get_models=lambda: [plain, below, proxy])
    [error] = checks.model_checks([config])
    assert (error.id, error.obj) == ("stator.E107", plain)
    assert error.msg == "Plain.state is a StateField, but Plain does not inherit StatorModel: nothing moves it."
    assert error.hint == "Let Plain inherit stator.models.StatorModel, or make state a CharField."


def test_a_managed_model_below_another_is_a_warning() -> None:
    [warning] = check_parents(Branch)
    assert warning.id == "stator.W104"
    said = "Branch inherits its state from BigKeyed: workers attempt its objects as objects of BigKeyed."
    assert warning.msg == said
    assert "OneToOneField" in warning.hint
    warning, error = check_parents(model_of("Leaf", BigKeyed, options={"history": True}))
    assert error.id == "stator.E108"
    assert error.msg == "Leaf.StatorMeta has no effect: the state of Leaf is that of BigKeyed."
    assert error.hint == "Move its options to BigKeyed.StatorMeta."
    assert [ids(check_parents(model)) for model in (BigKeyed, Heir, Parcel)] == [[]] * 3
    assert "stator.W104" in ids(check_model(Branch))


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


def test_a_column_of_stator_whose_name_is_nearly_that_of_a_field_is_doubted() -> None:
    tenant = models.IntegerField()
    [doubt] = check_spread(model_of("Mistyped", state=state(), tenant=tenant, options={"spread": "tenants"}))
    assert doubt.id == "stator.W106"
    assert doubt.msg.endswith("so Stator adds a column. Did you mean 'tenant'?")


def test_a_composite_primary_key_has_numbers_and_uuids() -> None:
    key = {"left": models.IntegerField(), "right": models.CharField(max_length=9)}
    pair = model_of("Pair", pk=models.CompositePrimaryKey(*key), **key, state=state())
    [error] = check_primary_key(pair)
    assert error.id == "stator.E102"
    # Django's admin takes no such model: the check is what is to be read.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StatorModel, "subclasses", [pair])
        register_managed(site := AdminSite())
    assert not site.is_registered(pair)
    # Django's own checks say nothing of our indexes.
    assert [*ids(check_model(pair)), *ids(pair.check())] == ["stator.E102"]
    assert "with a column that is neither an integer nor a UUID" in error.msg
    assert [ids(check_model(model)) for model in (Seat, Ledger, Parcel)] == [[], [], []]


@pytest.mark.parametrize(
    ("key", "length"),
    [
        (models.CharField(max_length=256, primary_key=True), "of up to 256 characters"),
        (models.TextField(primary_key=True), "of any length"),
    ],
)
def test_a_key_that_reports_cannot_name_is_refused(key: models.Field, length: str) -> None:
    long = model_of("Long", key_field=key.clone(), state=state())
    reference = models.OneToOneField(long, models.CASCADE, primary_key=True)
    for model in (long, model_of("Further", long=reference, state=state())):
        [error] = check_key_length(model)
        assert error.id == "stator.E103"
        name = model.__name__
        assert error.msg == f"{name} has a primary key {length}; reports and history store at most 255 of them."
    assert "stator.E103" in ids(check_model(long))


@pytest.mark.parametrize("name", ["nothing", "state_ready", "id", "state", "links"])
def test_what_a_state_saves_must_be_a_field_to_save(name: str) -> None:
    class SavingGraph(StateGraph):
        new = State(try_interval=1, saves=["note", name])
        done = State()
        new.transitions_to(done)

        @classmethod
        def handle_new(cls, instance: Any) -> None: ...

    given = {"note": models.TextField(), "links": models.ManyToManyField("self")}
    [error] = check_saved_fields(model_of("Saving", state=state(SavingGraph), **given))
    assert error.id == "stator.E105"
    assert error.msg == f"SavingGraph.new saves {name!r}; Saving has no such column to save."


def test_lost_indexes_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ids(check_indexes(Parcel)) == []
    monkeypatch.setattr(Parcel._meta, "indexes", Parcel._meta.indexes[1:])
    [warning] = check_indexes(Parcel)
    assert warning.id == "stator.W103"
    assert "st_ready_" in warning.msg


def test_checks_are_run_for_the_apps_that_are_asked_about() -> None:
    assert Parcel in checks.managed_models([apps.get_app_config("testapp")])
    assert checks.managed_models([apps.get_app_config("auth")]) == []
