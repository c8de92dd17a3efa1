"""Followers: whoever moves a row, what follows is done once, in the transaction of the move."""

import pytest
from django.db import connection

from stator.db import chores
from stator.graph.outcomes import Moved
from stator.models import Action
from stator.rows.followers import FOLLOWERS, Follower, FollowerKinds, followers_of
from stator.rows.transitions import move_by_hand
from stator.undo import undo
from tests.stator.making import ago, change, claim_all, operations_of, put, raw
from tests.testapp.basic import Page
from tests.testapp.baskets import Item, ItemGraph

pytestmark = pytest.mark.django_db(transaction=True)


class Watching(Follower):
    """A third party's follower of one model."""

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
    "method", ["by_hand", "reaping", "quarantined", "hung", "waking", "taken", "staying", "undone"]
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


def test_model_without_such_states_has_followers_of_acts_by_hand_alone(seen):
    assert not any(each.entries or each.exits for each in followers_of(Page))
    operations = operations_of(Page)
    assert (operations.entries, operations.exits) == (frozenset(), frozenset())


def test_nothing_is_moved_before_the_extensions_are_known(monkeypatch):
    monkeypatch.setattr("stator.rows.followers.FOLLOWERS", FollowerKinds())
    followers_of.cache_clear()
    with pytest.raises(RuntimeError, match=r"testapp\.Page: nothing can be moved before the app stator is ready"):
        followers_of(Page)
