"""What is remembered beside a row belongs to a life, a visit and a wish, whatever kind of record it is."""

import pytest

from stator.db import own_tables
from stator.graph.outcomes import Moved
from stator.models import Action, Step
from stator.rows.actions import UNDONE_WITHIN
from stator.rows.life import VERSION_AT, life_of
from stator.testing import advance, attempt, steps
from stator.undo import undo
from tests.stator.making import change, claim_all, operations_of, raw, row
from tests.testapp.lives import Contract, NumberedContract, PartContract
from tests.testapp.stepped import calls, noted

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def clean():
    yield
    calls.clear()


def keys():
    """The idempotency keys of the calls so far."""
    return [key for _, key in calls]


def named(model):
    """The key that its people give an object."""
    return {Contract: {"name": "a"}, PartContract: {"book": 1, "number": 2}, NumberedContract: {}}[model]


def made(model=Contract, **given):
    return model.objects.create(**named(model), **given)


@pytest.mark.parametrize("model", [Contract, PartContract])
def test_each_life_of_a_key_that_people_choose_has_a_number_of_its_own(model):
    first = life_of(row(made(model)))
    raw(model)._raw_delete("default")
    [again] = model.objects.bulk_create([model(**named(model))])
    assert 0 != first.number != life_of(row(again)).number != 0


def test_keys_of_the_database_pay_nothing():
    assert row(made(NumberedContract)).state_life is None


@pytest.mark.parametrize("model", [Contract, PartContract, NumberedContract])
def test_new_wish_has_steps_and_a_key_of_its_own_in_the_same_visit(model):
    one = made(model)
    attempt(one)
    one = row(one)
    one.amount = 2
    one.save()
    attempt(row(one))
    assert [name for name, _ in calls] == ["price", "price"]
    assert len(set(keys())) == 2
    assert list(steps(row(one))) == ["price"]
    now = row(one)
    assert (now.state, now.state_version) == ("drafted", 0)
    # A change back is a new wish too.
    model.objects.filter(pk=one.pk).update(amount=1)
    attempt(row(one))
    attempt(row(one))
    assert len(calls) == len(set(keys())) == 3


MODELS = [Contract, PartContract, NumberedContract]


def fail(one, implementation="vendor"):
    """Let the next attempt of an object do its step, and move it to where failures lead."""
    operations = operations_of(type(one), implementation, MAX_CRASHES=3)
    [claim] = claim_all(operations)
    claim.instance.stator = claim
    claim.own_steps().call("price", noted(claim.instance, "price"))
    operations.record([(claim, Moved(claim.state.failure_state, None))])
    assert row(one).state == "failed"


def by_hand(one):
    row(one).transition_perform("drafted")


def by_queryset(one):
    type(one).stator.filter(pk=one.pk).move("drafted")


def by_save(one):
    one = row(one)
    one.state = "drafted"
    one.save()


def by_event(one):
    row(one).stator.send("again")


@pytest.mark.parametrize("implementation", ["vendor", "portable"])
@pytest.mark.parametrize("back", [by_hand, by_queryset, by_save, by_event])
def test_move_back_from_where_a_failure_led_continues_the_visit_again_and_again(back, implementation):
    one = made()
    for _ in range(3):
        fail(one, implementation)
        assert own_tables.prune("default", 100, errors=1e6, history=1e6, stats=1e6) == 0
        back(one)
    attempt(row(one))
    assert [name for name, _ in calls] == ["price"]
    assert row(one).state_version == 6
    assert life_of(row(one)).visit == 0


@pytest.mark.parametrize("model", MODELS)
def test_votes_count_on_when_a_visit_continues(model):
    one = made(model)
    row(one).stator.send("approve", by="ann")
    fail(one)
    by_hand(one)
    assert row(one).stator.send("approve", by="ben").outcome == "moved"


def test_move_that_starts_over_repeats_the_steps_with_new_keys():
    for number, move in enumerate(
        (
            lambda one: row(one).transition_perform("drafted", start_over=True),
            lambda one: Contract.transition_perform_queryset(Contract.objects, "drafted", start_over=True),
            lambda one: Contract.stator.all().move("drafted", start_over=True),
        ),
        start=2,
    ):
        one = row(Contract(pk="a")) if number > 2 else made()
        Contract.stator.all().retry()
        fail(one)
        move(one)
        attempt(row(one))
        assert len(calls) == len(set(keys())) == number


def test_new_wish_is_not_served_by_the_steps_of_the_visit_that_continues():
    one = made()
    fail(one)
    one = row(one)
    one.amount = 2
    one.save()
    assert row(one).state == "failed"
    by_hand(one)
    attempt(row(one))
    assert len(calls) == len(set(keys())) == 2


def test_state_that_did_not_fail_is_entered_anew():
    """Two states fail to the same one."""
    one = made()
    fail(one)
    row(one).transition_perform("audited")
    attempt(row(one))
    assert [name for name, _ in calls] == ["price", "price"]
    assert len(set(keys())) == 2


def test_way_round_another_state_is_none_back():
    one = made()
    fail(one)
    row(one).transition_perform("approved")
    by_hand(one)
    attempt(row(one))
    assert len(calls) == len(set(keys())) == 2


def test_move_of_an_earlier_release_ends_a_visit_that_went_on():
    one = made()
    fail(one)
    by_hand(one)
    assert life_of(row(one)).visit == 0
    # Its workers do not know the column.
    change(one, state="audited", state_version=3)
    assert life_of(row(one)).visit == 3


def test_undo_gives_the_visit_back_with_steps_votes_and_key():
    one = made()
    row(one).stator.send("approve", by="ann")
    attempt(row(one))
    action = Action.of(Contract, "move", "eve", moves=True)
    Contract.stator.all().move("audited", action=action)
    assert own_tables.prune("default", 100, errors=1e6, history=1e6, stats=1e6) == 0
    assert undo(action.pk, "default", actor="eve", reason="").count == 1
    attempt(row(one))
    assert [name for name, _ in calls] == ["price"]
    assert row(one).stator.send("approve", by="ben").outcome == "moved"


def test_undone_return_can_be_made_once_more():
    one = made()
    fail(one)
    action = Action.of(Contract, "move", "eve", moves=True)
    Contract.stator.all().move("drafted", action=action)
    assert undo(action.pk, "default", actor="eve", reason="").count == 1
    assert row(one).state == "failed"
    by_hand(one)
    attempt(row(one))
    assert [name for name, _ in calls] == ["price"]


def test_undo_leaves_an_object_alone_to_which_something_was_sent_since():
    one = made()
    action = Action.of(Contract, "move", "eve", moves=True)
    change(one, state="failed")
    Contract.stator.all().move("drafted", action=action)
    row(one).stator.send("approve", by="ann")
    done = undo(action.pk, "default", actor="eve", reason="")
    assert (done.count, done.left) == (0, {"a": "got an event since"})


def test_steps_are_pruned_once_nobody_can_undo_the_move():
    one = made()
    attempt(row(one))
    row(one).transition_perform("approved")
    assert own_tables.prune("default", 100, errors=1e6, history=1e6, stats=1e6) == 0
    advance(UNDONE_WITHIN + 1, Contract)
    assert own_tables.prune("default", 100, errors=1e6, history=1e6, stats=1e6) == 1
    assert not Step.objects.exists()


def test_number_of_moves_is_no_limit():
    """A visit goes on over some 2,000 returns; then a new one begins."""
    one = made()
    fail(one)
    by_hand(one)
    for own, expected in ((4090, 1_000_000 - 4090 + 0), (4095, 1_000_002)):
        change(one, state_version=1_000_000, state_visit=(1_000_000 << VERSION_AT) + own)
        assert life_of(row(one)).visit == 1_000_000 - own
        fail(one)
        by_hand(one)
        assert life_of(row(one)).visit == expected
    change(one, state_version=(1 << 29) * 5 - 1, state_visit=None)
    fail(one)
    by_hand(one)
    assert life_of(row(one)).visit == (1 << 29) * 5 - 1
