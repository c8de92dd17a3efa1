"""Saving objects, with or without another state, never corrupts the framework's columns. Fault F18."""

import copy
import pickle
import uuid

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, transaction
from django.db.models.expressions import DatabaseDefault
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext, isolate_apps

from stator.db.interface import new_token
from stator.exceptions import LeaseLost
from stator.models import History, StatorModel
from stator.rows.claimable import Crashes
from stator.rows.columns import FRAMEWORK_COLUMNS
from stator.rows.fields import StateField
from tests.stator.holding import claimed, framework
from tests.stator.making import ago, bulk, change, expire, operations_of, put, raw, row
from tests.testapp.basic import Page, PageGraph, Step, StepGraph
from tests.testapp.keys import BigKeyed, BigProxy, Branch, Heir, IntKeyed
from tests.testapp.models import Line, LineGraph

pytestmark = pytest.mark.django_db


def reclaimed(instance):
    """Let the worker lose its lease and another one claim the row."""
    operations = operations_of(type(instance))
    expire(instance)
    operations.reap(10)
    (claim,) = operations.claim(list(operations.graph.automatic_states), 1, crashes=Crashes.FEW)
    return claim


# Saving


def stale_and_current():
    """An instance loaded before its row was claimed, and one loaded afterwards."""
    page = Page.objects.create(title="a")
    stale = Page.objects.get()
    claimed(page)
    return [stale, Page.objects.get()]


SAVES = {
    "save()": lambda page: page.save(),
    "save(update_fields)": lambda page: page.save(update_fields=["title"]),
    "save(update_fields of ours)": lambda page: page.save(update_fields=["title", "state_claim", "state_ready"]),
    "save(update_fields, state)": lambda page: page.save(update_fields=["title", "state"]),
    "save(force_update)": lambda page: page.save(force_update=True),
    "save_base()": lambda page: page.save_base(),
    "bulk_update()": lambda page: Page.objects.bulk_update([page], ["title"]),
    "update()": lambda page: Page.objects.filter(pk=page.pk).update(title=page.title),
    "update_or_create()": lambda page: Page.objects.update_or_create(pk=page.pk, defaults={"title": page.title}),
}


@pytest.mark.parametrize("age", ["stale", "current"])
@pytest.mark.parametrize("save", SAVES.values(), ids=SAVES)
def test_saving_never_writes_the_columns_of_the_framework(save, age):
    stale, current = stale_and_current()
    page = stale if age == "stale" else current
    before = framework(page)
    assert before["state_claim"]
    page.title = "b"
    for name in FRAMEWORK_COLUMNS - {"state_changed"}:
        if age == "current":
            setattr(page, name, getattr(Page(), name))
    save(page)
    assert framework(page) == before
    assert row(page).title == "b"


def test_stale_save_does_not_undo_a_move():
    stale = Page.objects.create(title="a")
    Page.objects.get().transition_perform("published")
    stale.title = "b"
    stale.save()
    assert (row(stale).title, row(stale).state, row(stale).state_version) == ("b", "published", 1)


def test_refused_holder_never_becomes_valid_again():
    page = Page.objects.create(title="a")
    late = claimed(page)
    second = reclaimed(page)
    late.state_claim = late.stator.token
    for save in (SAVES["update()"], SAVES["bulk_update()"], lambda page: page.refresh_from_db()):
        save(late)
    for save in (SAVES["save()"], SAVES["save(update_fields)"], SAVES["save(force_update)"]):
        with (
            pytest.raises(LeaseLost, match=r"testapp\.Page \d+: the claim on it has ended; this save changed nothing"),
            transaction.atomic(),
        ):
            save(late)
    assert row(page).state_claim == second.token
    assert not late.stator.still_mine()
    assert second.still_mine()


def test_handler_that_holds_its_claim_saves_as_usual():
    page = claimed(Page.objects.create(title="a"))
    page.title = "b"
    page.save()
    page.title = "c"
    page.save(update_fields=["title"])
    assert row(page).title == "c"
    assert page.stator.still_mine()


def test_late_handler_cannot_move_its_object_by_saving():
    page = Page.objects.create(title="a")
    late = claimed(page)
    second = reclaimed(page)
    late.state = PageGraph.published
    with pytest.raises(LeaseLost), transaction.atomic():
        late.save(update_fields=["state"])
    assert row(page).state == "draft"
    assert second.still_mine()


def test_handler_that_moves_its_object_by_saving_ends_its_claim():
    page = claimed(Page.objects.create(title="a"))
    claim = page.stator
    page.state = PageGraph.published
    page.save()
    assert row(page).state == "published"
    assert not claim.still_mine()
    assert not page.stator


def test_handler_may_delete_its_object():
    page = claimed(Page.objects.create(title="a"))
    claim = page.stator
    page.delete()
    assert not claim.still_mine()


def test_deferred_columns_are_left_alone():
    pk = Page.objects.create(title="a").pk
    page = Page.objects.only("title").get(pk=pk)
    page.title = "b"
    page.save()
    assert (row(page).title, row(page).state) == ("b", "draft")


def test_saving_an_object_with_a_key_of_its_own_does_not_reset_its_row():
    page = Page.objects.create(title="a", state="review")
    Page(pk=page.pk, title="b").save()
    assert (row(page).title, row(page).state, row(page).state_version) == ("b", "review", 0)


# Assigning state


@pytest.mark.parametrize("state", [PageGraph.published, "published"])
@pytest.mark.parametrize("fields", [None, ["state"], ["state", "title"]])
def test_assigning_state_and_saving_moves_the_object(state, fields):
    page = Page.objects.create(title="a")
    claim = claimed(page).stator
    page.state = state
    page.save(update_fields=fields)
    found = row(page)
    assert (found.state, found.state_version, found.state_ready, found.state_claim) == ("published", 1, False, None)
    assert not claim.still_mine()
    assert [(h.source, h.to, h.version) for h in History.objects.all()] == [("draft", "published", 1)]


def test_saving_without_the_state_among_the_fields_does_not_move():
    page = Page.objects.create(title="a")
    page.state = "review"
    page.save(update_fields=["title"])
    assert row(page).state == "draft"
    page.save()
    assert row(page).state == "review"


@pytest.mark.postgresql
def test_many_are_sent_as_arrays_and_begin_at_the_moment_of_the_database():
    with CaptureQueriesContext(connection) as queries:
        pages = Page.objects.bulk_create(Page(title=str(number)) for number in range(50))
    assert "UNNEST" in queries[-1]["sql"]
    [moment] = set(Page.objects.values_list("state_changed", flat=True))
    assert 0 <= (raw(Page).annotate(now=Now()).first().now - moment).total_seconds() < 60
    assert pages[49].state_changed == moment


CREATE = {
    "create()": lambda: Page.objects.create(title="a"),
    "save()": lambda: saved(Page(title="a")),
    "bulk_create()": lambda: Page.objects.bulk_create(bulk(Page(title="a")))[0],
}

each_creation = pytest.mark.parametrize("create", CREATE.values(), ids=CREATE)


def saved(page):
    page.save()
    return page


@each_creation
def test_moment_of_a_new_object_is_read_once_somebody_asks(django_assert_max_num_queries, create):
    page = create()
    with django_assert_max_num_queries(1):
        moments = [page.state_changed, page.state_changed]
    assert set(moments) == {row(page).state_changed}


@each_creation
def test_nothing_is_read_to_save_a_new_object_again(create):
    page = create()
    page.title = "b"
    with CaptureQueriesContext(connection) as queries:
        page.save()
    assert ["UPDATE"] == [query["sql"].split()[0] for query in queries]
    assert "state_changed" not in queries[0]["sql"]


def test_moment_of_an_object_that_was_not_inserted_is_a_default(django_assert_max_num_queries):
    with django_assert_max_num_queries(0):
        assert isinstance(Page().state_changed, DatabaseDefault)
        assert pickle.loads(pickle.dumps(Page(title="a"))).title == "a"


@pytest.mark.parametrize(
    "load",
    [
        lambda: Page.objects.bulk_create(bulk(Page(title="a")))[0],
        lambda: Page.objects.defer("title").get(pk=Page.objects.create(title="a").pk),
        lambda: Page.objects.defer("state").get(pk=Page.objects.create(title="a").pk),
    ],
    ids=["in bulk", "another column is deferred", "the state is deferred"],
)
def test_object_is_moved_by_saving_however_it_was_made_or_loaded(load):
    page = load()
    page.state = PageGraph.review
    assert page.title == "a"
    page.save()
    assert (row(page).state, row(page).state_version) == ("review", 1)


def test_assigning_an_unknown_state_is_refused_and_nothing_is_written():
    page = Page.objects.create(title="a")
    page.title, page.state = "b", "nowhere"
    with pytest.raises(ValueError, match="'nowhere' is not a state of PageGraph; its"), transaction.atomic():
        page.save()
    assert (row(page).state, row(page).title) == ("draft", "a")


# Properties of managed models and their objects, and moves by hand


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


def test_transition_perform_can_be_called_unbound():
    page = Page.objects.create(title="a")
    StatorModel.transition_perform(page, "published")
    Page.transition_perform(page, PageGraph.review)
    assert (row(page).state, row(page).state_version) == ("review", 2)


def test_transition_perform_keeps_unsaved_changes_of_other_fields():
    page = Page.objects.create(title="a")
    page.title = "b"
    page.transition_perform("review")
    assert page.title == "b"
    page.save()
    assert (row(page).title, row(page).state_version) == ("b", 1)


def test_transition_perform_may_lead_anywhere_and_records_who_and_why():
    page = Page.objects.create(title="a", state="published")
    page.transition_perform("draft", actor="eve", reason="typo")
    act = History.objects.get()
    assert (act.model_label, act.object_pk) == ("testapp.page", str(page.pk))
    assert (act.source, act.to, act.version, act.actor, act.reason) == ("published", "draft", 1, "eve", "typo")
    assert str(act) == f"testapp.page {page.pk}: published -> draft"


def test_versions_have_no_gaps():
    page = Page.objects.create(title="a")
    for state in ("review", "draft", "published"):
        page.transition_perform(state)
    page.state = "draft"
    page.save()
    Page.objects.filter(pk=page.pk).update(state="review")
    assert list(History.objects.order_by("version").values_list("version", "source", "to")) == [
        (1, "draft", "review"), (2, "review", "draft"), (3, "draft", "published"), (4, "published", "draft"),
        (5, "draft", "review"),
    ]  # fmt: skip
    assert row(page).state_version == 5


def test_moving_what_is_gone_does_nothing():
    page = Page.objects.create(title="a")
    raw(Page).all().delete()
    page.transition_perform("review")
    assert not History.objects.exists()


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
