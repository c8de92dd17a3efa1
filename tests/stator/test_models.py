"""Properties of managed models and their objects."""

import copy
import pickle
import uuid

import pytest
from django.test.utils import isolate_apps

from stator.db.interface import new_token
from stator.models import StatorModel
from stator.rows.columns import FRAMEWORK_COLUMNS
from stator.rows.fields import StateField
from tests.stator.holding import claimed
from tests.stator.making import ago, put, row
from tests.testapp.basic import Page, PageGraph, Step, StepGraph
from tests.testapp.keys import BigKeyed, BigProxy, Branch, Heir, IntKeyed
from tests.testapp.models import Line, LineGraph

pytestmark = pytest.mark.django_db


def test_state_age_is_the_time_in_the_state():
    step = put(Step, state_changed=ago(100))
    assert 99 < step.state_age < 120
    assert 0 <= Step.objects.create().state_age < 20
    assert Step().state_age == 0


def test_state_graph_is_known_to_class_and_object():
    assert Step.state_graph is StepGraph
    assert Step().state_graph is StepGraph
    assert Branch.state_graph is BigKeyed.state_graph
    assert BigProxy.state_graph is BigKeyed.state_graph


def test_subclasses_are_in_the_order_of_their_definition_without_abstract_proxy_and_child_models():
    ours = [model for model in StatorModel.subclasses if model.__module__ == IntKeyed.__module__]
    names = [
        "IntKeyed",
        "BigKeyed",
        "UuidKeyed",
        "TextKeyed",
        "CodeKeyed",
        "AliasKeyed",
        "OneToOneKeyed",
        "Heir",
        "OddTable",
        "QuotedTable",
        "OddColumns",
        "Seat",
        "Ledger",
        "Door",
        "PlaceInHall",
    ]
    assert [model.__name__ for model in ours] == names
    assert Heir in StatorModel.subclasses
    assert {Branch, BigProxy}.isdisjoint(StatorModel.subclasses)
    assert len(StatorModel.subclasses) == len(set(StatorModel.subclasses))


@isolate_apps("tests.testapp")
def test_models_of_a_test_or_a_migration_are_not_registered():
    before = list(StatorModel.subclasses)

    class Temporary(StatorModel):
        state = StateField(LineGraph)

        class Meta:
            app_label = "testapp"

    assert Temporary.state_graph is LineGraph
    assert StatorModel.subclasses == before


def test_claim_is_seen_on_the_object_only_during_an_attempt():
    page = Page.objects.create(title="a")
    assert not page.stator
    assert claimed(page).stator.attempt == 1


def test_objects_can_be_copied_and_pickled():
    page = Page.objects.create(title="a")
    page.state = PageGraph.review
    for twin in (pickle.loads(pickle.dumps(page)), copy.deepcopy(page), copy.copy(page)):
        assert twin.state == PageGraph.review
        twin.save()
    assert row(page).state == "review"


def test_columns_of_the_framework_are_as_promised():
    assert {field.name for field in Line._meta.fields} == {"id", "state", "name"} | FRAMEWORK_COLUMNS
    assert new_token("0" * 12).version == 8


def test_token_is_one_that_every_database_takes(monkeypatch):
    """MariaDB refuses a UUID of this version whose ninth byte has nothing but the variant."""
    monkeypatch.setattr("stator.db.interface.os.urandom", bytes)
    token = new_token("f" * 12)
    assert (token.version, token.variant) == (8, uuid.RFC_4122)
    assert token.bytes[8] != 0x80
