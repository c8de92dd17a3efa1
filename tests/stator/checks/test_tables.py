"""Checks of a managed model: its state field, primary key, indexes, waits and saved fields."""

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
from tests.testapp.keys import BigKeyed, Branch, Heir, Ledger, Seat
from tests.testapp.mails import Postcard
from tests.testapp.operators import Parcel, ParcelGraph


def ids(found: Any) -> list[str]:
    return [message.id for message in found]


class TestTables:
    @isolate_apps("tests.testapp")
    def test_a_managed_model_has_a_state(self) -> None:
        class Without(StatorModel):
            class Meta:
                app_label = "testapp"

        class Plain(StatorModel):
            state = models.CharField(max_length=10)

            class Meta:
                app_label = "testapp"

        [missing], [wrong] = check_state_field(Without), check_state_field(Plain)
        assert (missing.id, wrong.id) == ("stator.E101", "stator.E101")
        assert missing.msg == "Without inherits StatorModel, but it has no StateField."
        assert "StateField(YourGraph), under any name" in missing.hint
        assert ids(check_state_field(Parcel)) == []
        # Which has a field ``state`` for something else.
        assert ids(check_model(Postcard)) == []

    @isolate_apps("tests.testapp")
    def test_state_fields_beside_the_state_are_refused(self) -> None:
        class Twice(StatorModel):
            state = StateField(ParcelGraph)
            billing = StateField(ParcelGraph)

            class Meta:
                app_label = "testapp"

        [error] = check_state_fields(Twice)
        assert error.id == "stator.E106"
        assert error.msg == "Twice.billing is a StateField beside Twice.state; an object has one state."
        assert "model of its own" in error.hint
        assert "stator.E106" in ids(check_model(Twice))
        assert ids(check_state_fields(Parcel)) == []

    @isolate_apps("tests.testapp")
    def test_a_field_in_the_place_of_a_column_of_stator_is_refused(self) -> None:
        class Taken(StatorModel):
            status = StateField(ParcelGraph)
            state_ready = models.CharField(max_length=10)
            state_attempts = None  # type: ignore[assignment]

            class Meta:
                app_label = "testapp"

        attempts, ready = check_columns(Taken)
        assert (attempts.id, ready.id) == ("stator.E112", "stator.E112")
        assert ready.msg == "Taken.state_ready is not the column of Stator with this name, which workers write."
        assert "migrations.RenameField" in ready.hint
        assert ids(check_columns(Parcel)) == []

    @isolate_apps("tests.testapp")
    def test_a_state_field_of_a_plain_model_is_refused(self) -> None:
        class Plain(models.Model):
            state = StateField(ParcelGraph)

            class Meta:
                app_label = "testapp"

        class Below(Plain):
            class Meta:
                app_label = "testapp"

        class Proxy(Plain):
            class Meta:
                app_label = "testapp"
                proxy = True

        config: Any = SimpleNamespace(get_models=lambda: [Plain, Below, Proxy])
        [error] = checks.model_checks([config])
        assert (error.id, error.obj) == ("stator.E107", Plain)
        assert error.msg == "Plain.state is a StateField, but Plain does not inherit StatorModel: nothing moves it."
        assert error.hint == "Let Plain inherit stator.models.StatorModel, or make state a CharField."

    @isolate_apps("tests.testapp")
    def test_a_managed_model_below_another_is_a_warning(self) -> None:
        class Leaf(BigKeyed):
            class StatorMeta:
                history = True

            class Meta:
                app_label = "testapp"

        [warning] = check_parents(Branch)
        assert warning.id == "stator.W104"
        assert (
            warning.msg
            == "Branch inherits its state from BigKeyed: workers attempt its objects as objects of BigKeyed."
        )
        assert "OneToOneField" in warning.hint
        warning, error = check_parents(Leaf)
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
    def test_a_table_is_spread_by_a_field_that_each_row_has(self, field: Any, name: str, wrong: str) -> None:
        with isolate_apps("tests.testapp"):

            class Spread(StatorModel):
                state = StateField(ParcelGraph)
                owner = field

                class Meta:
                    app_label = "testapp"

                class StatorMeta:
                    spread = name

        found = list(check_spread(Spread))
        assert ids(found) == ["stator.E111"] * bool(wrong)
        assert all(f"Spread.StatorMeta.spread={name!r} {wrong}" in each.msg for each in found)

    @isolate_apps("tests.testapp")
    def test_a_column_of_stator_whose_name_is_nearly_that_of_a_field_is_doubted(self) -> None:
        class Mistyped(StatorModel):
            state = StateField(ParcelGraph)
            tenant = models.IntegerField()

            class Meta:
                app_label = "testapp"

            class StatorMeta:
                spread = "tenants"

        [doubt] = check_spread(Mistyped)
        assert doubt.id == "stator.W106"
        assert doubt.msg.endswith("so Stator adds a column. Did you mean 'tenant'?")

    @isolate_apps("tests.testapp")
    def test_a_composite_primary_key_has_numbers_and_uuids(self) -> None:
        class Pair(StatorModel):
            pk = models.CompositePrimaryKey("left", "right")
            left = models.IntegerField()
            right = models.CharField(max_length=9)
            state = StateField(ParcelGraph)

            class Meta:
                app_label = "testapp"

        [error] = check_primary_key(Pair)
        assert error.id == "stator.E102"
        # Django's admin takes no such model: the check is what is to be read.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(StatorModel, "subclasses", [Pair])
            register_managed(site := AdminSite())
        assert not site.is_registered(Pair)
        # Django's own checks say nothing of our indexes.
        assert [*ids(check_model(Pair)), *ids(Pair.check())] == ["stator.E102"]
        assert "with a column that is neither an integer nor a UUID" in error.msg
        assert [ids(check_model(model)) for model in (Seat, Ledger, Parcel)] == [[], [], []]

    @pytest.mark.parametrize(
        ("key", "length"),
        [
            (models.CharField(max_length=256, primary_key=True), "of up to 256 characters"),
            (models.TextField(primary_key=True), "of any length"),
        ],
    )
    @isolate_apps("tests.testapp")
    def test_a_key_that_reports_cannot_name_is_refused(self, key: models.Field, length: str) -> None:
        class Long(StatorModel):
            key_field = key.clone()
            state = StateField(ParcelGraph)

            class Meta:
                app_label = "testapp"

        class Further(StatorModel):
            long = models.OneToOneField(Long, models.CASCADE, primary_key=True)
            state = StateField(ParcelGraph)

            class Meta:
                app_label = "testapp"

        for model in (Long, Further):
            [error] = check_key_length(model)
            assert error.id == "stator.E103"
            assert error.msg == (
                f"{model.__name__} has a primary key {length}; reports and history store at most 255 of them."
            )
        assert "stator.E103" in ids(check_model(Long))

    @pytest.mark.parametrize("name", ["nothing", "state_ready", "id", "state", "links"])
    @isolate_apps("tests.testapp")
    def test_what_a_state_saves_must_be_a_field_to_save(self, name: str) -> None:
        class SavingGraph(StateGraph):
            new = State(try_interval=1, saves=["note", name])
            done = State()
            new.transitions_to(done)

            @classmethod
            def handle_new(cls, instance: Any) -> None: ...

        class Saving(StatorModel):
            state = StateField(SavingGraph)
            note = models.TextField()
            links = models.ManyToManyField("self")

            class Meta:
                app_label = "testapp"

        [error] = check_saved_fields(Saving)
        assert error.id == "stator.E105"
        assert error.msg == f"SavingGraph.new saves {name!r}; Saving has no such column to save."

    def test_lost_indexes_are_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert ids(check_indexes(Parcel)) == []
        monkeypatch.setattr(Parcel._meta, "indexes", Parcel._meta.indexes[1:])
        [warning] = check_indexes(Parcel)
        assert warning.id == "stator.W103"
        assert "st_ready_" in warning.msg

    def test_checks_are_run_for_the_apps_that_are_asked_about(self) -> None:
        assert Parcel in checks.managed_models([apps.get_app_config("testapp")])
        assert checks.managed_models([apps.get_app_config("auth")]) == []
