"""Properties of managed models and their objects, and moves by hand."""

import copy
import pickle
import uuid
from inspect import getsourcelines

import pytest
from asgiref.sync import async_to_sync
from django.db import models
from django.test.utils import isolate_apps

from stator.db.interface import new_token
from stator.models import History, StatorModel
from stator.rows.beginning import FRAMEWORK_COLUMNS
from stator.rows.state_column import StateField
from tests.stator.holding import claimed, framework
from tests.stator.making import ago, change, model_of, put, raw, row
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
    lines = [getsourcelines(model)[1] for model in ours]
    assert lines == sorted(lines)
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


# Moving objects by hand: what is written, by whom and why, and what is refused


@pytest.mark.parametrize("state", [PageGraph.review, "review"])
def test_transition_perform_moves_the_object_and_shows_it(state):
    page = Page.objects.create(title="a")
    change(page, state_failures=3, state_attempts=7, state_crashes=2, state_next_attempt=ago(-60))
    claim = claimed(Page.objects.create(title="b")).stator
    page.transition_perform(state)
    assert (page.state, page.state_version, page.state_ready) == ("review", 1, True)
    assert (page.state_failures, page.state_attempts, page.state_crashes, page.state_next_attempt) == (0, 0, 0, None)
    assert framework(page)["state"] == "review"
    assert claim.still_mine()


@isolate_apps("tests.testapp")
def test_transition_perform_shows_an_object_that_the_base_manager_hides_then():
    class Begun(models.Manager):
        def get_queryset(self):
            return super().get_queryset().filter(state="first")

    hiding = model_of("BegunLine", Line, meta={"proxy": True, "base_manager_name": "begun"}, begun=Begun())
    line = hiding(pk=Line.objects.create().pk)
    line.refresh_from_db()
    line.transition_perform("last")
    assert line.state == "last"


def test_transition_perform_keeps_unsaved_changes_of_other_fields_and_can_be_called_unbound():
    page = Page.objects.create(title="a")
    page.title = "b"
    StatorModel.transition_perform(page, "published")
    Page.transition_perform(page, PageGraph.review)
    assert page.title == "b"
    page.save()
    assert (row(page).title, row(page).state, row(page).state_version) == ("b", "review", 2)


def test_transition_perform_may_lead_anywhere_and_records_who_and_why():
    page = Page.objects.create(title="a", state="published")
    page.transition_perform("draft", actor="eve", reason="typo")
    act = History.objects.get()
    assert (act.model_label, act.object_pk) == ("testapp.page", str(page.pk))
    assert (act.source, act.to, act.version, act.actor, act.reason) == ("published", "draft", 1, "eve", "typo")
    assert str(act) == f"testapp.page {page.pk}: published -> draft"
    # What is gone is not moved.
    raw(Page).all().delete()
    page.transition_perform("review")
    assert History.objects.get() == act


@async_to_sync
async def twins():
    page = await Page.objects.acreate(title="a")
    await page.atransition_perform("review", actor="eve")
    assert page.state == "review"
    assert await Page.atransition_perform_queryset(Page.objects.all(), "published", reason="all") == 1
    page.state = "draft"
    await page.asave()
    return page


def test_async_twins_do_the_same():
    found = row(twins())
    assert (found.state, found.state_version) == ("draft", 3)
