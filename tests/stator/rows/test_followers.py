"""Followers: whoever moves a row, what follows is done once, in the transaction of the move."""

from functools import partial

import pytest
from django.db import connection, transaction

from stator.db import chores
from stator.extensions.events.follower import KeptEvents
from stator.extensions.related.followers import Entered, Related, ReopenedWaiters, Repointed
from stator.extensions.reports.follower import KeptActs
from stator.extensions.undo.follower import Remembered
from stator.graph.outcomes import Moved
from stator.models import Action, Before, History
from stator.rows.followers import FOLLOWERS, Follower, followers_of
from stator.rows.transitions import move_by_hand
from stator.undo import undo
from tests.stator.extensions.related.waiting import is_parked, waiting
from tests.stator.making import ago, change, claim_all, operations_of, put, raw, row
from tests.testapp.basic import Page
from tests.testapp.baskets import Basket, Item, ItemGraph
from tests.testapp.lives import Contract
from tests.testapp.models import Line
from tests.testapp.waiting import Rollout

pytestmark = pytest.mark.django_db(transaction=True)


# The contract of every follower


def move(instance, state):
    row(instance).transition_perform(state)


def basket_with(state, item):
    basket = put(Basket, state_ready=False)
    change(basket, state=state)
    return basket, put(Item, state=item, basket=basket)


def of_acts():
    page = put(Page, title="a")
    return page, "review", partial(move, page, "review"), History.objects.count


def of_actions():
    page, action = put(Page, title="a"), Action.of(Page, "move", "ann", moves=True)
    return page, "review", lambda: Page.stator.all().move("review", action=action), Before.objects.count


def of_events():
    contract = Contract.objects.create(name="a")
    contract.stator.send("pay")
    return contract, "approved", partial(move, contract, "approved"), lambda: row(contract).state


def of_waiters():
    build, rollout = waiting(operations_of(Rollout))
    return build, "built", partial(move, build, "built"), lambda: is_parked(rollout)


def of_relations():
    _, rollout = waiting(operations_of(Rollout))
    return rollout, "new", lambda: Rollout.objects.update(build=None), lambda: is_parked(rollout)


def of_conditions():
    basket, _ = basket_with("filling", "packed")
    return basket, "collecting", partial(move, basket, "collecting"), lambda: row(basket).state


def of_related():
    basket, item = basket_with("collecting", "waiting")
    return item, "packed", partial(move, item, "packed"), lambda: row(basket).state


# By each: a row, the state that it enters, the act that is followed, and what that changes beside it.
CASES = {
    KeptActs: of_acts,  # stator.extensions.reports
    Remembered: of_actions,  # stator.extensions.undo
    KeptEvents: of_events,  # stator.extensions.events
    ReopenedWaiters: of_waiters,  # stator.extensions.related
    Repointed: of_relations,  # stator.extensions.related
    Entered: of_conditions,  # stator.extensions.related
    Related: of_related,  # stator.extensions.related
}


def follows_moves(kind):
    return any(getattr(kind, name) is not getattr(Follower, name) for name in ("by_hand", "left", "entered", "written"))


def test_every_follower_of_moves_has_a_case():
    assert {*CASES} == {kind for kind in FOLLOWERS.all if follows_moves(kind)}


@pytest.mark.parametrize("kind", FOLLOWERS.all, ids=lambda kind: kind.__name__)
def test_follower_follows_no_moves_of_a_model_that_does_not_want_it(kind):
    bound = kind.bind(Line)
    assert bound is None or not (bound.entries or bound.exits or bound.fields)


@pytest.mark.parametrize("kind", CASES, ids=lambda kind: kind.__name__)
def test_what_follows_is_undone_with_the_act_and_done_once(kind):
    instance, state, act, seen = CASES[kind]()
    [follower] = [each for each in followers_of(type(instance)) if type(each) is kind]
    before = seen()
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        act()
        assert seen() != before
        raise ZeroDivisionError
    assert seen() == before
    act()
    after = seen()
    assert after != before
    if state in follower.entries:
        with transaction.atomic():
            follower.entered("default", state, [instance.pk], wait=True)
        assert seen() == after


# Where followers are called


class Watching(Follower):
    seen: list[tuple[str, str, list[object]]]

    def __init__(self, model):
        super().__init__(model)
        if model is Item:
            self.entries, self.exits = frozenset({"packed", "waiting"}), frozenset({"packing", "waiting"})

    def by_hand(self, rows, pks, act):
        if self.model is Item:
            self.note(f"{act.kind} by {act.actor}", act.target and act.target.name, pks)

    def left(self, using, before):
        self.note("left", str(before[0].state), [each.pk for each in before])

    def entered(self, using, state, pks, *, wait):
        self.note("entered", state, pks)

    def note(self, what, state, pks):
        assert connection.in_atomic_block
        self.seen.append((what, state, list(pks)))


@pytest.mark.parametrize(
    "method", ["by_hand", "reaping", "quarantined", "hung", "waking", "taken", "staying", "went_back"]
)
def test_follower_without_states_follows_what_it_defines(monkeypatch, method):
    mine = type("Mine", (Follower,), {method: lambda self, *args, **named: {}})
    monkeypatch.setattr(FOLLOWERS, "all", (*FOLLOWERS.all, mine, type("Idle", (Follower,), {})))
    followers_of.cache_clear()
    try:
        assert [type(each) for each in followers_of(Page)].count(mine) == 1
        assert "Idle" not in {type(each).__name__ for each in followers_of(Page)}
    finally:
        followers_of.cache_clear()


@pytest.fixture
def seen(monkeypatch):
    monkeypatch.setattr(Watching, "seen", [], raising=False)
    monkeypatch.setattr(FOLLOWERS, "all", (*FOLLOWERS.all, Watching))
    followers_of.cache_clear()
    yield Watching.seen
    followers_of.cache_clear()


def by_attempt(items, item):
    items.record([(claim, Moved(ItemGraph.packed)) for claim in claim_all(items)])


def by_condition(items, item):
    change(item, state="packing", state_ready=False, note="found")
    chores.move_matching(items, 10)


def by_hand(items, item):
    item.transition_perform("packed")


def by_save(items, item):
    item.state = "packed"
    item.save()


def by_queryset(items, item):
    Item.objects.update(state="packed")


@pytest.mark.parametrize("implementation", ["vendor", "portable"])
@pytest.mark.parametrize("move", [by_attempt, by_condition, by_hand, by_save, by_queryset])
def test_follower_acts_once_whoever_moves_a_row(seen, move, implementation):
    item = put(Item)
    move(operations_of(Item, implementation), item)
    source = "packing" if move is by_condition else "waiting"
    preceding = [] if move in (by_attempt, by_condition) else [("hand by ", "packed", [item.pk])]
    assert seen == [*preceding, ("left", source, [item.pk]), ("entered", "packed", [item.pk])]


def test_states_that_are_not_followed_are_not_told(seen):
    item = put(Item)
    change(item, state="lost", state_ready=False)
    item.refresh_from_db()
    item.transition_perform("packing")
    change(item, state="packing", state_ready=False, state_changed=ago(4000))
    assert chores.time_out(operations_of(Item), 10).count == 1
    assert seen == [("hand by ", "packing", [item.pk]), ("left", "packing", [item.pk])]


def test_act_without_a_move_is_told_before_the_row_changes(seen):
    item = put(Item, state_failures=3)
    Item.stator.filter(pk=item.pk).retry(actor="anna")
    assert seen == [("hand by anna", None, [item.pk])]


def test_undo_is_followed_as_any_move(seen):
    item = put(Item)
    action = Action.of(Item, "move", "anna", "by mistake", moves=True)
    move_by_hand(raw(Item), "packed", actor="anna", action=action)
    assert undo(action.pk, "default", actor="eve", reason="wrong").count == 1
    assert seen[-1] == ("entered", "waiting", [item.pk])


def test_follower_that_fails_undoes_the_move(seen, monkeypatch):
    item = put(Item)
    monkeypatch.setattr(Watching, "entered", lambda *given, **options: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        item.transition_perform("packed")
    assert raw(Item).get().state == "waiting"


def test_nothing_is_moved_before_the_extensions_are_known(monkeypatch):
    monkeypatch.setattr(FOLLOWERS, "all", None)
    followers_of.cache_clear()
    with pytest.raises(RuntimeError, match=r"testapp\.Page: nothing can be moved before the app stator is ready"):
        followers_of(Page)
