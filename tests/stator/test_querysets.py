"""What operators ask and do through ``Model.stator``, and the guard on the framework's columns. Fault F18."""

import pytest
from asgiref.sync import async_to_sync
from django.db import connection, migrations, models, router, transaction
from django.db.models import F, Q, Value
from django.test import override_settings

from stator.db.interface import new_token
from stator.exceptions import ProtectedColumn
from stator.graph.failures import describe
from stator.models import History, Report
from stator.rows.column_guard import GuardedQuerySet
from stator.rows.columns import FRAMEWORK_COLUMNS
from stator.rows.reports import failure_report, keep_reports
from tests.stator.making import ago, put, raw, row
from tests.testapp.basic import Author, Page, PageGraph, PageQuerySet, Step, StepGraph
from tests.testapp.keys import BigKeyed, BigProxy, Branch, TextKeyed, UuidKeyed

pytestmark = pytest.mark.django_db

LEASED = {"state_claim": new_token("0" * 12), "state_locked_until": ago(-60), "state_ready": False}


def pks(rows):
    return {instance.pk for instance in rows}


@pytest.fixture
def steps():
    """One row for each thing an operator may ask for."""
    return {
        "ready": put(Step),
        "ready too early": put(Step, state_next_attempt=ago(-60)),
        "due": put(Step, state_ready=False, state_next_attempt=ago(1)),
        "never attempted": put(Step, state_ready=False, state_next_attempt=None),
        "not due": put(Step, state_ready=False, state_next_attempt=ago(-60)),
        "leased": put(Step, **LEASED),
        "failed": put(Step, state_ready=False, state_next_attempt=ago(-60), state_failures=2),
        "suspect": put(Step, state_crashes=1),
        "quarantined": put(Step, state_ready=False, state_crashes=3),
        "external": put(Step, state="outside"),
        "terminal": put(Step, state="done"),
        "stuck": put(Step, state="late", state_changed=ago(3601), state_next_attempt=ago(-60)),
        "late": put(Step, state="late", state_changed=ago(3500), state_next_attempt=ago(-60)),
    }


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        (lambda rows: rows.ready(), {"ready", "suspect"}),
        (lambda rows: rows.due(), {"ready", "suspect", "due", "never attempted"}),
        (lambda rows: rows.leased(), {"leased"}),
        (lambda rows: rows.failed(), {"failed", "quarantined"}),
        (lambda rows: rows.quarantined(), {"quarantined"}),
        (lambda rows: rows.stuck(), {"stuck"}),
        (lambda rows: rows.in_state("late"), {"stuck", "late"}),
        (lambda rows: rows.in_state(StepGraph.outside, "done"), {"external", "terminal"}),
        (lambda rows: rows.in_state("nowhere"), set()),
        (lambda rows: rows.failed().filter(state_failures=2), {"failed"}),
    ],
    ids=["ready", "due", "leased", "failed", "quarantined", "stuck", "one state", "two states", "no state", "both"],
)
def test_operators_find_rows_that_are(steps, ask, expected):
    assert pks(ask(Step.stator)) == {steps[name].pk for name in expected}


def test_counts_tell_of_every_state_of_the_graph_and_of_unknown_ones(steps):
    raw(Step).filter(pk=steps["ready"].pk).update(state="of tomorrow")
    assert Step.stator.counts() == {
        "new": 8, "slow": 0, "late": 2, "outside": 1, "renewed": 0, "done": 1, "failed": 0, "of tomorrow": 1
    }  # fmt: skip
    assert Step.stator.order_by("name").counts()["late"] == 2
    assert Step.stator.in_state("late").counts()["new"] == 0


def test_quarantine_begins_where_the_setting_says():
    step = put(Step, state_ready=False, state_crashes=3)
    with override_settings(STATOR={"MAX_CRASHES": 5}):
        assert not Step.stator.quarantined().exists()
    assert list(Step.stator.quarantined()) == [step]


def test_retry_has_rows_attempted_now_with_a_clean_record(steps):
    left = row(steps["leased"])
    assert Step.stator.retry() == 10
    again = raw(Step).filter(state__in=["new", "late"], state_claim=None)
    assert set(again.values_list("state_ready", "state_failures", "state_crashes", "state_next_attempt")) == {
        (True, 0, 0, None)
    }
    assert row(steps["leased"]).__dict__ | {"_state": 0} == left.__dict__ | {"_state": 0}
    assert not row(steps["external"]).state_ready
    assert not row(steps["terminal"]).state_ready
    assert not History.objects.exists()


def test_unlock_ends_claims_and_only_those(steps):
    assert Step.stator.unlock() == 1
    found = row(steps["leased"])
    assert (found.state_claim, found.state_locked_until, found.state_ready) == (None, None, True)
    assert not row(steps["not due"]).state_ready
    assert Step.stator.unlock() == 0


def test_move_moves_rows_and_records_who_and_why(steps):
    assert Step.stator.in_state("late").move(StepGraph.done, actor="eve", reason="enough") == 2
    assert {row(steps[name]).state for name in ("stuck", "late")} == {"done"}
    assert set(History.objects.values_list("source", "to", "actor", "reason")) == {("late", "done", "eve", "enough")}


def report(instance, message="no", error=ValueError):
    failure = describe(error(message))
    keep_reports("default", type(instance)._meta.label_lower, [
        failure_report(type(instance)._meta.label_lower, instance.pk, instance.state, failure, "0" * 12)
    ])  # fmt: skip
    return failure


@pytest.mark.parametrize("model", [Step, UuidKeyed, TextKeyed])
def test_rows_are_found_by_their_report(model):
    reported, _ = model.objects.create(), model.objects.create(**({"slug": "b"} if model is TextKeyed else {}))
    failure = report(reported)
    assert list(model.stator.with_report()) == [reported]
    assert list(model.stator.with_report(fingerprint=failure.fingerprint)) == [reported]
    assert list(model.stator.with_report(error="KeyError")) == []


def test_child_is_found_by_the_report_of_its_parent():
    branch = Branch.objects.create()
    Report.objects.create(model_label="testapp.bigkeyed", object_pk=str(branch.pk), state="first")
    assert list(Branch.stator.with_report()) == [branch]
    assert [found.pk for found in BigProxy.stator.with_report()] == [branch.pk]


def test_operators_see_rows_that_the_default_manager_hides():
    page = put(Page, title="a", hidden=True)
    assert not Page.visible.exists()
    assert list(Page.stator.ready()) == [page]
    assert Page.stator.filter(pk=page.pk).move("review") == 1
    assert Page.stator.retry() == 1
    assert row(page).state == "review"


def test_hidden_object_can_be_moved_and_saved():
    page = put(Page, title="a", hidden=True)
    page.state = "review"
    page.save()
    page.transition_perform("published")
    assert (row(page).state, row(page).state_version) == ("published", 2)


# The guard

WAYS = {
    "default manager": lambda: Page._default_manager.all(),
    "filtering manager": lambda: Page.visible.all(),
    "plain manager": lambda: Page.objects.all(),
    "manager itself": lambda: Page.objects,
    "manager from a queryset": lambda: Page.pages.about("a"),
    "queryset as manager": lambda: Page.as_manager.about("a"),
    "manager that builds its queryset": lambda: Page.by_hand.all().about("a"),
    "operators' own": lambda: Page.stator.all(),
    "foreign key": lambda: Author.objects.get().pages.all(),
    "many to many": lambda: Author.objects.get().reads.all(),
    "filtered": lambda: Page.objects.filter(title="a"),
    "chained": lambda: Page.objects.exclude(title="x").order_by("pk").select_related("author"),
    "joined": lambda: Page.objects.filter(author__name="eve"),
    "using": lambda: Page.objects.using("default"),
}


@pytest.fixture
def page():
    eve = Author.objects.create(name="eve")
    page = put(Page, title="a", author=eve)
    page.readers.add(eve)
    raw(Page).filter(pk=page.pk).update(**LEASED)
    return page


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("column", sorted(FRAMEWORK_COLUMNS))
def test_update_of_a_framework_column_is_refused_whatever_the_manager(page, way, column):
    before = raw(Page).values().get()
    with pytest.raises(ProtectedColumn) as caught:
        way().update(**{column: None})
    assert str(caught.value) == (
        f"Page: {column} can be written only by a transition; use Page.transition_perform_queryset(queryset, state)"
    )
    assert raw(Page).values().get() == before


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_update_of_the_state_moves_the_rows_whatever_the_manager(page, way):
    assert way().update(state=PageGraph.review) == 1
    found = row(page)
    assert (found.state, found.state_version, found.state_claim, found.state_ready) == ("review", 1, None, True)
    assert History.objects.get().to == "review"


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_update_of_other_columns_works_and_leaves_the_claim(page, way):
    assert way().update(title="b") == 1
    assert row(page).title == "b"
    assert row(page).state_claim == LEASED["state_claim"]


def test_update_of_state_and_other_columns_is_one_move(page):
    assert Page.objects.update(state="review", title="b", hidden=F("hidden")) == 1
    assert (row(page).state, row(page).title, row(page).state_version) == ("review", "b", 1)


def test_update_of_a_child_writes_its_own_columns_with_the_move():
    branch = Branch.objects.create(leaf="a")
    assert Branch.objects.update(state="second", leaf="b", note="c") == 1
    found = row(branch)
    assert (found.state, found.state_version, found.leaf, found.note) == ("second", 1, "b", "c")


def test_update_to_an_unknown_state_is_refused():
    with pytest.raises(ValueError, match="'nowhere' is not a state of PageGraph"):
        Page.objects.update(state="nowhere")


@pytest.mark.parametrize("state", [F("title"), Value("review")])
def test_update_of_the_state_by_an_expression_is_refused(page, state):
    with pytest.raises(ProtectedColumn, match="Page: state can be written only by a transition"):
        Page.objects.update(state=state)
    assert row(page).state == "draft"


@pytest.mark.parametrize("columns", [["state"], ["title", "state_claim"], ["state_ready"]])
def test_bulk_update_of_our_columns_is_refused(page, columns):
    with pytest.raises(ProtectedColumn, match="can be written only by a transition"), transaction.atomic():
        Page.objects.bulk_update([page], columns)


def test_bulk_update_of_other_columns_works(page):
    page.title = "b"
    assert Page.objects.bulk_update([page], ["title"]) == 1
    assert row(page).title == "b"


def test_bulk_create_may_overwrite_other_columns_on_conflict(page):
    Page.objects.bulk_create(
        [Page(title="a", hidden=True)], update_conflicts=True, update_fields=["hidden"], unique_fields=["title"]
    )
    assert row(page).hidden
    assert row(page).state_claim == LEASED["state_claim"]


@pytest.mark.parametrize(
    "create",
    [
        lambda pages: Page.objects.bulk_create(
            pages, update_conflicts=True, update_fields=["title", "state"], unique_fields=["title"]
        ),
        lambda pages: Page.objects.bulk_create(pages, None, False, True, ["state_claim"], ["title"]),
        lambda pages: Page.by_hand.bulk_create(pages, None, False, True, ["state_ready"], ["title"]),
    ],
    ids=["by name", "by position", "manager that builds its queryset"],
)
def test_bulk_create_may_not_overwrite_our_columns_on_conflict(page, create):
    with pytest.raises(ProtectedColumn, match="can be written only by a transition"):
        create([Page(title="a")])
    assert row(page).state_claim == LEASED["state_claim"]


def test_bulk_create_may_ignore_conflicts(page):
    Page.objects.bulk_create([Page(title="a", state="review"), Page(title="b")], ignore_conflicts=True)
    assert row(page).state == "draft"
    assert raw(Page).count() == 2


def test_async_update_is_guarded(page):
    @async_to_sync
    async def update(**values):
        return await Page.objects.aupdate(**values)

    with pytest.raises(ProtectedColumn):
        update(state_claim=None)
    assert update(state="review") == 1


def test_related_managers_create_ready_rows():
    eve = Author.objects.create(name="eve")
    page = eve.pages.create(title="a")
    assert row(page).state_ready
    made, created = eve.pages.update_or_create(title="a", defaults={"state": "review"})
    assert not created
    assert row(made).state == "review"
    eve.pages.clear()
    assert row(page).author is None


def test_guarded_managers_keep_their_names_methods_and_migrations():
    assert type(Page.pages).__name__ == "ManagerFromPageQuerySet"
    assert isinstance(Page.as_manager.all(), PageQuerySet)
    assert isinstance(Page.by_hand.all(), PageQuerySet)
    assert isinstance(Page.by_hand.all(), GuardedQuerySet)
    as_manager, _, qs_class, *_ = Page.as_manager.deconstruct()
    assert as_manager
    assert qs_class == "tests.testapp.basic.PageQuerySet"
    assert isinstance(Page.objects, models.Manager)
    operation = migrations.AlterModelManagers("page", [("visible", Page.visible)])
    assert operation.managers[0][1].deconstruct()[1] == "tests.testapp.basic.Visible"


def test_managers_of_unmanaged_models_are_left_alone():
    assert not issubclass(Author.objects._queryset_class, GuardedQuerySet)
    author = Author.objects.create(name="a")
    assert Author.objects.filter(pk=author.pk).update(name="b") == 1


def test_empty_and_contradictory_querysets_change_nothing(page):
    assert Page.objects.none().update(state="review") == 0
    assert Page.stator.filter(Q(pk__in=[])).move("review") == 0
    assert Page.stator.filter(pk=page.pk + 1).unlock() == 0
    assert row(page).state_version == 0


def test_operators_manager_works_on_the_database_it_is_told(page):
    assert Page.stator.using(router.db_for_read(Page)).leased().count() == 1
    assert connection.alias == "default"


def test_big_keyed_child_and_parent_are_one_row():
    branch = Branch.objects.create()
    assert BigKeyed.stator.filter(pk=branch.pk).move("second") == 1
    assert Branch.stator.in_state("second").retry() == 1
    assert row(branch).state == "second"
