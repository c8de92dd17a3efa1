"""Managers and querysets of managed models never write the columns of the framework directly."""

import pytest
from django.db import migrations, models, transaction
from django.db.models import F, Value

from stator.exceptions import ProtectedColumn
from stator.models import History
from stator.querysets import ManagedQuerySet
from stator.rows.beginning import FRAMEWORK_COLUMNS
from tests.stator.making import LEASED, raw, row
from tests.testapp.basic import Author, Page, PageGraph, PageQuerySet
from tests.testapp.keys import Branch

pytestmark = pytest.mark.django_db


WAYS = {
    "default manager": lambda: Page._default_manager.all(),
    "filtering manager": lambda: Page.visible.all(),
    "plain manager": lambda: Page.objects.all(),
    "manager itself": lambda: Page.objects,
    "manager from a queryset": lambda: Page.pages.about("a"),
    "queryset as manager": lambda: Page.as_manager.about("a"),
    "manager that builds its queryset": lambda: Page.by_hand.all().about("a"),  # type: ignore[attr-defined]
    "operators' own": lambda: Page.stator.all(),
    "foreign key": lambda: Author.objects.get().pages.all(),
    "many to many": lambda: Author.objects.get().reads.all(),
    "filtered": lambda: Page.objects.filter(title="a"),
    "chained": lambda: Page.objects.exclude(title="x").order_by("pk").select_related("author"),
    "joined": lambda: Page.objects.filter(author__name="eve"),
    "using": lambda: Page.objects.using("default"),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_update_of_a_framework_column_is_refused_whatever_the_manager(page, way):
    before = raw(Page).values().get()
    for column in FRAMEWORK_COLUMNS:
        with pytest.raises(ProtectedColumn) as caught:
            way().update(**{column: None})
        assert str(caught.value) == (
            f"Page: {column} can be written only by a transition; use Page.transition_perform_queryset(queryset, state)"
        )
    assert raw(Page).values().get() == before
    # Those of the project are written, and leave the claim; the state moves the row.
    assert way().update(hidden=False) == 1
    assert row(page).state_claim == LEASED["state_claim"]
    assert way().update(state=PageGraph.review) == 1
    found = row(page)
    assert (found.state, found.state_version, found.state_claim, found.state_ready) == ("review", 1, None, True)
    assert History.objects.get().to == "review"


def test_update_of_state_and_other_columns_is_one_move(page):
    assert Page.objects.update(state="review", title="b", hidden=F("hidden")) == 1
    assert (row(page).state, row(page).title, row(page).state_version) == ("review", "b", 1)


def test_update_of_a_child_writes_its_own_columns_with_the_move():
    branch = Branch.objects.create(leaf="a")
    assert Branch.objects.update(state="second", leaf="b", note="c") == 1
    found = row(branch)
    assert (found.state, found.state_version, found.leaf, found.note) == ("second", 1, "b", "c")


def test_update_to_an_unknown_state_or_by_an_expression_is_refused(page):
    with pytest.raises(ValueError, match="'nowhere' is not a state of PageGraph"):
        Page.objects.update(state="nowhere")
    for state in (F("title"), Value("review")):
        with pytest.raises(ProtectedColumn, match="Page: state can be written only by a transition"):
            Page.objects.update(state=state)
    assert row(page).state == "draft"


def test_bulk_update_of_our_columns_is_refused(page):
    for columns in (["state"], ["title", "state_claim"], ["state_ready"]):
        with pytest.raises(ProtectedColumn, match="can be written only by a transition"), transaction.atomic():
            Page.objects.bulk_update([page], columns)


# MySQL takes no names of the columns that conflict.
@pytest.mark.postgresql
@pytest.mark.sqlite
def test_bulk_create_may_overwrite_other_columns_on_conflict_and_not_ours(page):
    def create(*columns, manager=Page.objects):
        pages = [Page(title="a", hidden=True)]
        manager.bulk_create(pages, update_conflicts=True, update_fields=columns, unique_fields=["title"])

    create("hidden")
    assert row(page).hidden
    for act in (
        lambda: create("title", "state"),
        lambda: create("state_ready", manager=Page.by_hand),
        lambda: Page.objects.bulk_create([Page(title="a")], None, False, True, ["state_claim"], ["title"]),
    ):
        with pytest.raises(ProtectedColumn, match="can be written only by a transition"):
            act()
    assert row(page).state_claim == LEASED["state_claim"]


def test_related_managers_create_ready_rows():
    eve = Author.objects.create(name="eve")
    page = eve.pages.create(title="a")
    assert row(page).state_ready
    made, created = eve.pages.update_or_create(title="a", defaults={"state": "review"})
    assert not created
    assert row(made).state == "review"
    eve.pages.clear()
    assert row(page).author is None


def test_managers_of_managed_models_keep_their_names_methods_and_migrations():
    assert type(Page.pages).__name__ == "ManagerFromPageQuerySet"
    assert isinstance(Page.as_manager.all(), PageQuerySet)
    assert isinstance(Page.by_hand.all(), PageQuerySet)
    assert isinstance(Page.by_hand.all(), ManagedQuerySet)
    as_manager, _, qs_class, *_ = Page.as_manager.deconstruct()
    assert as_manager
    assert qs_class == "tests.testapp.basic.PageQuerySet"
    assert isinstance(Page.objects, models.Manager)
    operation = migrations.AlterModelManagers("page", [("visible", Page.visible)])
    assert operation.managers[0][1].deconstruct()[1] == "tests.testapp.basic.Visible"
