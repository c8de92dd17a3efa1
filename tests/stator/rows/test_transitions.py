"""Moves by hand of many objects: which, in what order, in what transactions, and what is told of them."""

import pytest
from asgiref.sync import async_to_sync
from django.db import IntegrityError, transaction
from django.db.models import Count, F, Q

from stator.exceptions import ProtectedState
from stator.models import History, StatorModel, move_rows
from stator.rows import locking
from stator.runner import StatorRunner
from stator.signals import became_ready, transitioned
from stator.testing import attempt
from tests.sizes import PATIENCE
from tests.stator.making import ago, at_once, begun_beside, put, raw, row
from tests.stator.running import connected, hearing
from tests.testapp.basic import Author, Page, PageGraph, Step, StepGraph
from tests.testapp.keys import BigKeyed, BigProxy, Branch
from tests.testapp.waiting import Build, BuildGraph

pytestmark = pytest.mark.django_db


def pages(count, **columns):
    return [put(Page, title=f"{number:05}", **columns) for number in range(count)]


def moved():
    return set(raw(Page).filter(state="review").values_list("title", flat=True))


@pytest.fixture
def listen(django_capture_on_commit_callbacks):
    """Hears the moves that are told of once the transaction has committed."""
    heard = []

    def hear(sender, moves, using, **kwargs):
        heard.append((sender, [(move.pk, move.source, move.to) for move in moves], using))

    with connected(transitioned, hear):
        yield heard


QUERYSETS = {
    "queryset": (lambda: Page.objects.filter(title__lt="00003"), 3),
    "manager": (lambda: Page.objects, 6),
    "filtering manager": (lambda: Page.visible, 6),
    "related manager": (lambda: Author.objects.get().pages, 2),
    "many to many manager": (lambda: Author.objects.get().reads, 2),
    "sliced": (lambda: Page.objects.order_by("title")[:4], 4),
    "sliced from the end": (lambda: Page.objects.order_by("-title")[1:3], 2),
    "distinct": (lambda: Page.objects.distinct(), 6),
    "ordered": (lambda: Page.objects.order_by("-title"), 6),
    "joined": (lambda: Page.objects.filter(author__name="eve"), 2),
    "joined twice": (lambda: Page.objects.filter(Q(readers__name="eve") | Q(author__name="eve")), 4),
    "joined to many": (lambda: Page.objects.filter(readers__name__in=["eve", "bob"]).distinct(), 2),
    "annotated": (lambda: Page.objects.annotate(n=Count("readers")).filter(n__gt=0), 2),
    "united": (lambda: Page.objects.filter(title="00000").union(Page.objects.filter(title="00005")), 2),
    "or": (lambda: Page.objects.filter(title="00000") | Page.objects.filter(title="00001"), 2),
    "values": (lambda: Page.objects.values("title"), 6),
    "only": (lambda: Page.objects.only("title"), 6),
    "selecting related": (lambda: Page.objects.select_related("author"), 6),
    "locking": (lambda: Page.objects.select_for_update(), 6),
    "reversed": (lambda: Page.objects.order_by("pk").reverse(), 6),
    "one key": (lambda: Page.objects.filter(pk=Page.objects.first().pk), 1),
    "one key or more": (lambda: Page.objects.filter(Q(pk=Page.objects.first().pk) | Q(title="00003")), 2),
    "one key and more": (lambda: Page.objects.filter(pk=Page.objects.first().pk, author__name="eve"), 1),
    "all but one key": (lambda: Page.objects.exclude(pk=Page.objects.first().pk), 5),
    "a key that is a column": (lambda: Page.objects.filter(pk=F("pk")), 6),
    "the key of a related object": (lambda: Page.objects.filter(author__pk=Author.objects.get().pk), 2),
    "none": (lambda: Page.objects.none(), 0),
    "operators' own": (lambda: Page.stator.ready(), 6),
    "in the state that the move leaves": (lambda: Page.objects.filter(state="draft"), 6),
}


@pytest.mark.parametrize(("queryset", "expected"), QUERYSETS.values(), ids=QUERYSETS)
def test_every_row_of_a_queryset_is_moved_once(monkeypatch, queryset, expected):
    monkeypatch.setattr(locking, "BATCH", 2)
    eve = Author.objects.create(name="eve")
    made = pages(6)
    raw(Page).filter(pk__in=[made[0].pk, made[3].pk]).update(author=eve)
    for page in made[4:]:
        page.readers.add(eve)
    assert Page.transition_perform_queryset(queryset(), PageGraph.review) == expected
    assert raw(Page).filter(state="review", state_version=1, state_ready=True).count() == expected
    assert raw(Page).filter(state_version=0).count() == 6 - expected
    assert History.objects.count() == expected


def test_each_manual_move_is_recorded_with_its_author_and_bounded():
    pages(2)
    Page.transition_perform_queryset(Page.objects.all(), "review", actor="e" * 500, reason="r" * 5000)
    acts = History.objects.order_by("pk")
    assert [(act.version, act.source, act.to) for act in acts] == [(1, "draft", "review")] * 2
    assert {(len(act.actor), len(act.reason)) for act in acts} == {(150, 500)}


def test_moves_are_sent_after_the_commit_and_not_after_a_rollback(listen, django_capture_on_commit_callbacks):
    made = pages(2)
    with django_capture_on_commit_callbacks(execute=True), pytest.raises(IntegrityError), transaction.atomic():
        made[0].transition_perform("review")
        raise IntegrityError
    assert listen == []
    assert not History.objects.exists()
    with django_capture_on_commit_callbacks(execute=True):
        Page.transition_perform_queryset(Page.objects.order_by("pk"), "review")
        assert listen == []
    assert listen == [(Page, [(page.pk, "draft", "review") for page in made], "default")]


def test_workers_are_woken_where_the_new_state_is_attempted(django_capture_on_commit_callbacks):
    pages(1)
    with hearing(became_ready) as woken, django_capture_on_commit_callbacks(execute=True):
        Page.transition_perform_queryset(Page.objects.all(), "review")
    assert (Page, "default") in [(sender, values["using"]) for sender, values in woken]
    with hearing(became_ready) as woken, django_capture_on_commit_callbacks(execute=True):
        Page.transition_perform_queryset(Page.objects.all(), "published")
    assert woken == []


def test_children_and_proxies_move_their_parents_row(listen, django_capture_on_commit_callbacks):
    branch = Branch.objects.create(leaf="a")
    with django_capture_on_commit_callbacks(execute=True):
        branch.transition_perform("second")
        BigProxy.objects.get().transition_perform("last")
        Branch.transition_perform_queryset(Branch.objects.filter(leaf="a"), "first")
    assert (row(branch).state, row(branch).state_version) == ("first", 3)
    assert {sender for sender, *_ in listen} == {BigKeyed}
    assert set(History.objects.values_list("model_label", flat=True)) == {"testapp.bigkeyed"}


@pytest.mark.usefixtures("transactional_db")
class TestRaces:
    """Several connections, and so no transaction around the test."""

    def test_moves_that_race_leave_versions_without_gaps_and_one_act_each(self):
        page = put(Page, title="a")
        targets = ["review", "published", "draft"] * 3
        at_once(*(lambda target=target: Page.objects.get().transition_perform(target) for target in targets))
        assert row(page).state_version == 9
        acts = list(History.objects.order_by("version"))
        assert [act.version for act in acts] == list(range(1, 10))
        assert all(before.to == after.source for before, after in zip(acts, acts[1:], strict=False))

    def test_row_that_no_longer_matches_once_it_is_locked_is_left_alone(self):
        put(Page, title="a")
        moved = at_once(*(lambda: Page.transition_perform_queryset(Page.objects.filter(state="draft"), "review"),) * 4)
        assert sum(moved) == 1
        assert History.objects.count() == 1

    @pytest.mark.postgresql
    @pytest.mark.parametrize(
        "conditions",
        [
            lambda page: {"state": "draft"},
            lambda page: {"pk": page.pk, "state": "draft"},
            lambda page: {"pk": page.pk, "pk__in": Page.objects.filter(state="draft")},
        ],
        ids=["many rows", "one row", "one row by a subquery"],
    )
    def test_move_waits_for_another_and_leaves_what_it_no_longer_means(self, conditions):
        page = put(Page, title="a")

        def move():
            return Page.transition_perform_queryset(Page.objects.filter(**conditions(page)), "review")

        with transaction.atomic():
            assert move() == 1
            beside = begun_beside(move)
            assert not beside.done(), "the second move did not wait"
        assert beside.result(PATIENCE) == 0
        assert (row(page).state_version, History.objects.count()) == (1, 1)

    def test_opposite_orders_do_not_deadlock(self):
        pages(30, state_changed=ago(5))
        orders = [Page.objects.order_by("pk"), Page.objects.order_by("-pk")] * 2
        at_once(*(lambda rows=rows: Page.transition_perform_queryset(rows, "review") for rows in orders))
        assert set(raw(Page).values_list("state_version", flat=True)) == {4}


@pytest.fixture
def sealed(monkeypatch):
    for state in (StepGraph.done, StepGraph.failed, StepGraph.late):
        monkeypatch.setattr(state, "enter_by_hand", False)


def assign(step, **options):
    step.state, step.name = "done", "written"
    step.save(**options)


async def assign_later(step):
    step.state, step.name = StepGraph.done, "written"
    await step.asave()


BY_HAND = {
    "transition_perform": lambda step: step.transition_perform("done"),
    "transition_perform, unbound": lambda step: StatorModel.transition_perform(step, StepGraph.done),
    "atransition_perform": lambda step: async_to_sync(step.atransition_perform)("done"),
    "of a queryset": lambda step: Step.transition_perform_queryset(Step.objects.filter(pk=step.pk), "done"),
    "of a queryset, async": lambda step: async_to_sync(Step.atransition_perform_queryset)(Step.objects, "done"),
    "of no rows": lambda step: Step.transition_perform_queryset(Step.objects.none(), "done"),
    "operators": lambda step: Step.stator.filter(pk=step.pk).move("done", actor="ann"),
    "update": lambda step: Step.objects.filter(pk=step.pk).update(state="done", name="written"),
    "aupdate": lambda step: async_to_sync(Step.objects.filter(pk=step.pk).aupdate)(state=StepGraph.done),
    "update_or_create": lambda step: Step.objects.update_or_create({"state": "done"}, pk=step.pk),
    "save": assign,
    "save of some fields": lambda step: assign(step, update_fields=["state", "name"]),
    "asave": async_to_sync(assign_later),
}


@pytest.mark.parametrize("move", BY_HAND.values(), ids=BY_HAND)
def test_state_that_only_the_framework_enters_is_refused_to_every_move_by_hand(sealed, move):
    step = put(Step)
    with pytest.raises(ProtectedState) as refused, transaction.atomic():
        move(step)
    assert str(refused.value) == (
        "StepGraph.done can be entered only by the framework, not by hand; "
        "you can move objects to new, slow, outside, renewed"
    )
    assert isinstance(refused.value, ValueError)
    assert (row(step).state, row(step).name, row(step).state_version) == ("new", "", 0)
    assert not History.objects.exists()


def test_object_in_a_state_that_only_the_framework_enters_is_saved_as_any_other(sealed):
    step = put(Step, state="done")
    step.name = "written"
    step.save()
    assert row(step).name == "written"
    step.transition_perform("slow")
    assert row(step).state == "slow"


def test_framework_enters_such_states_by_handlers_errors_timeouts_and_conditions(sealed, monkeypatch):
    monkeypatch.setattr(BuildGraph.built, "enter_by_hand", False)
    worked, failed = put(Step), put(Step, state_failures=2)
    late, outside = put(Step, state_changed=ago(8000)), put(Step, state="outside", state_changed=ago(8000))
    monkeypatch.setattr(StepGraph, "handle_new", lambda step: 1 / 0 if step.pk == failed.pk else None)
    approved = put(Build, state="checked", approved=True)
    StatorRunner([Step, Build]).run_single_cycle()
    assert [row(each).state for each in (failed, late, outside, approved)] == ["failed", "late", "failed", "built"]
    monkeypatch.undo()
    assert attempt(worked).to == StepGraph.done


def test_code_of_the_model_enters_such_states_with_author_and_reason(sealed):
    steps = [put(Step) for _ in range(3)]
    assert move_rows(Step.objects.exclude(pk=steps[2].pk), "done", actor="ann", reason="asked for") == 2
    assert [row(step).state for step in steps] == ["done", "done", "new"]
    assert set(History.objects.values_list("actor", "reason", "to")) == {("ann", "asked for", "done")}
    with pytest.raises(ValueError, match="'nowhere' is not a state of StepGraph"):
        move_rows(Step.objects, "nowhere")


def test_receiver_that_raises_is_logged_and_what_follows_the_commit_goes_on(django_capture_on_commit_callbacks, caplog):
    def bad(sender, **values):
        raise RuntimeError("no")

    page = put(Page)
    with (
        connected(transitioned, bad),
        hearing(became_ready, Page) as heard,
        django_capture_on_commit_callbacks(execute=True),
    ):
        page.transition_perform("review")
    assert page.state == row(page).state == "review"
    assert len(heard) == 1
    assert "stator.receiver_failed" in caplog.messages
