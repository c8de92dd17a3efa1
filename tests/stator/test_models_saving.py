"""Saving objects, with or without another state, never corrupts the framework's columns. Fault F18."""

import pickle

import pytest
from django.db import connection, transaction
from django.db.models.expressions import DatabaseDefault
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from stator.exceptions import LeaseLost
from stator.models import History
from stator.rows.beginning import FRAMEWORK_COLUMNS
from stator.rows.claimable import Crashes
from tests.stator.holding import claimed, framework
from tests.stator.making import bulk, expire, operations_of, raw, row
from tests.testapp.basic import Page, PageGraph
from tests.testapp.keys import Heir, UuidKeyed

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
    # Nor does one of another object that has the key.
    Page(pk=stale.pk, title="c").save()
    assert (row(stale).title, row(stale).state, row(stale).state_version) == ("c", "published", 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda pk, state: Page(pk=pk, title="c", state=state),
        lambda pk, state: assigned(Page(pk=pk, title="c"), state),
        lambda pk, state: assigned(Page.objects.get(pk=pk), state),
    ],
    ids=["by the constructor", "assigned", "of a loaded object"],
)
def test_state_of_an_object_that_was_not_loaded_moves_its_row(make):
    page = Page.objects.create(title="a")
    make(page.pk, PageGraph.published).save()
    assert (row(page).title, row(page).state, row(page).state_version) == ("c", "published", 1)
    # An import that writes each object every night moves none again.
    make(page.pk, "published").save()
    assert (row(page).title, row(page).state_version) == ("c", 1)
    with pytest.raises(ValueError, match="'nowhere' is not a state of PageGraph"), transaction.atomic():
        make(page.pk, "nowhere").save()
    assert (row(page).title, row(page).state) == ("c", "published")


def assigned(page, state):
    page.state, page.title = state, "c"
    return page


def test_object_that_django_inserts_asks_for_no_row(django_assert_max_num_queries):
    with django_assert_max_num_queries(1):
        UuidKeyed(state="second").save()
    with django_assert_max_num_queries(1):
        Page(title="a", state="published").save()
    page = UuidKeyed.objects.create()
    UuidKeyed(pk=page.pk, state="second").save(force_update=True)
    assert row(page).state == "second"


def test_initial_state_moves_its_row_if_it_was_given():
    page = Page.objects.create(title="a", state="published")
    Page(pk=page.pk, title="b", state="draft").save(update_fields=["title"])
    assert (row(page).title, row(page).state) == ("b", "published")
    Page(pk=page.pk, title="b", state="draft").save()
    assert row(page).state == "draft"


def test_copy_of_a_whole_row_does_not_move_it():
    page = Page.objects.create(title="a")
    old = Page.objects.values().get()
    page.transition_perform("published")
    Page(**old | {"title": "b"}).save()
    assert (row(page).title, row(page).state) == ("b", "published")


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


def test_handler_that_holds_its_claim_saves_and_deletes_its_object_as_usual():
    page = claimed(Page.objects.create(title="a"))
    page.title = "b"
    page.save()
    page.title = "c"
    page.save(update_fields=["title"])
    assert row(page).title == "c"
    claim = page.stator
    assert claim.still_mine()
    page.delete()
    assert not claim.still_mine()


def test_fields_of_a_plain_parent_are_written_by_the_holder_and_not_by_a_late_one():
    heir = claimed(Heir.objects.create(title="a"))
    heir.title = "b"
    heir.save()
    second = reclaimed(heir)
    heir.title = "c"
    with pytest.raises(LeaseLost), transaction.atomic():
        heir.save(update_fields=["title"])
    assert row(heir).title == "b"
    assert second.still_mine()


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


def test_deferred_columns_are_left_alone():
    pk = Page.objects.create(title="a").pk
    page = Page.objects.only("title").get(pk=pk)
    page.title = "b"
    page.save()
    assert (row(page).title, row(page).state) == ("b", "draft")


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


def saved(page):
    page.save()
    return page


@pytest.mark.parametrize("create", CREATE.values(), ids=CREATE)
def test_moment_of_a_new_object_is_read_once_somebody_asks(django_assert_max_num_queries, create):
    page = create()
    page.title = "b"
    # Nothing is read to save it again.
    with django_assert_max_num_queries(1):
        page.save()
    with django_assert_max_num_queries(1):
        moments = [page.state_changed, page.state_changed]
    assert set(moments) == {row(page).state_changed}


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
