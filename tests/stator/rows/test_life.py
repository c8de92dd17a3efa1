"""What is remembered beside a row belongs to a life, a visit and a wish, whatever kind of record it is."""

from contextlib import suppress

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.models.signals import pre_delete

from stator.admin.timeline import timeline_of
from stator.db import own_tables
from stator.db.chores import delete_due
from stator.exceptions import EventRefused
from stator.extensions.events.problems import SentEvents
from stator.extensions.pauses.models import pause_objects
from stator.extensions.problems.facts import gather
from stator.graph.outcomes import Moved
from stator.migration_operations import RenameState
from stator.models import Action, Event, Progress, Report, Step
from stator.rows import columns
from stator.rows.life import VERSION_AT, WISHES, life_of
from stator.rows.state_column import state_field
from stator.testing import advance, attempt, steps
from stator.undo import undo
from tests.stator.making import ago, change, claim_all, operations_of, raw, row
from tests.stator.running import hearing
from tests.testapp.lives import Contract, NumberedContract, PartContract, Party
from tests.testapp.stepped import calls, noted

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def clean():
    yield
    calls.clear()


def keys():
    return [key for _, key in calls]


def named(model):
    """The key that its people give an object."""
    return {Contract: {"name": "a"}, PartContract: {"book": 1, "number": 2}, NumberedContract: {}}[model]


def made(model=Contract, **given):
    return model.objects.create(**named(model), **given)


@pytest.mark.parametrize("model", [Contract, PartContract])
def test_each_life_of_a_key_that_people_choose_has_a_number_of_its_own(model):
    """Keys of the database pay nothing."""
    first = life_of(row(made(model)))
    raw(model)._raw_delete("default")
    [again] = model.objects.bulk_create([model(**named(model))])
    assert 0 != first.number != life_of(row(again)).number != 0
    assert row(made(NumberedContract)).state_life is None


@pytest.mark.needs("steps")
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


@pytest.mark.parametrize("model", [Contract, PartContract, NumberedContract])
def test_move_in_the_same_write_as_a_new_wish_hides_none(model):
    one = made(model)
    one.amount, one.state = 2, "audited"
    one.save()
    first = life_of(row(one)).number
    model.objects.filter(pk=one.pk).update(amount=3, state="drafted")
    second = life_of(row(one)).number
    model.objects.filter(pk=one.pk).update(amount=3, state="audited")
    assert [first % WISHES, second - first, life_of(row(one)).number - second] == [1, 1, 0]


def test_attempt_that_writes_its_own_object_begins_no_wish():
    one = made()
    [claim] = claim_all(operations_of(Contract))
    claim.instance.stator = claim
    claim.instance.amount = 5
    claim.instance.save()
    assert life_of(row(one)).number % WISHES == 0


def test_wish_begins_in_a_state_that_nothing_attempts_and_in_one_that_this_code_does_not_know():
    for number, state in enumerate(("failed", "paid", "of another version"), start=1):
        one = row(Contract(pk="a")) if number > 1 else made()
        change(one, state=state, state_ready=False)
        one = row(one)
        one.amount += 1
        one.save()
        assert life_of(row(one)).number % WISHES == number


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


def by_manager(one):
    type(one).stator.filter(pk=one.pk).move("drafted")


def by_save(one):
    one = row(one)
    one.state = "drafted"
    one.save()


def by_event(one):
    row(one).stator.send("again")


@pytest.mark.parametrize("implementation", ["vendor", "portable"])
@pytest.mark.parametrize("back", [by_hand, by_manager, by_save, by_event])
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
    if back is by_event:
        Contract.stator.retry()
        [claim] = claim_all(operations_of(Contract))
        assert (claim.event.name, claim.event.version, claim.life.visit) == ("again", 0, 0)


def test_move_that_starts_over_repeats_the_steps_with_new_keys():
    for number, move in enumerate(
        (
            lambda one: row(one).transition_perform("drafted", start_over=True),
            lambda one: Contract.transition_perform_queryset(Contract.objects, "drafted", start_over=True),
            lambda one: Contract.stator.all().move("drafted", start_over=True),
            lambda one: call_command(
                "stator", "move", "testapp.Contract", "drafted", "a", "--reason", "r", "--start-over"
            ),
        ),
        start=2,
    ):
        one = row(Contract(pk="a")) if number > 2 else made()
        Contract.stator.all().retry()
        fail(one)
        move(one)
        attempt(row(one))
        assert len(calls) == len(set(keys())) == number


def wish_and_return(one):
    Contract.objects.filter(pk=one.pk).update(amount=2)
    assert row(one).state == "failed"
    by_hand(one)


def return_by_another(one):
    row(one).transition_perform("approved")
    by_hand(one)


# Another state that fails to the same one continues nothing.
GO_ON = [
    pytest.param(wish_and_return, marks=pytest.mark.needs("events")),
    lambda one: row(one).transition_perform("audited"),
    return_by_another,
]


@pytest.mark.parametrize("go_on", GO_ON)
def test_steps_of_the_visit_are_repeated_with_new_keys_where_it_is_not_continued(go_on):
    one = made()
    fail(one)
    go_on(one)
    attempt(row(one))
    assert [name for name, _ in calls] == ["price", "price"]
    assert len(set(keys())) == 2


def test_move_of_an_earlier_release_ends_a_visit_that_went_on():
    one = made()
    fail(one)
    by_hand(one)
    assert life_of(row(one)).visit == 0
    # Its workers do not know the column.
    change(one, state="audited", state_version=3)
    assert life_of(row(one)).visit == 3


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


# Each kind of record beside a row, as something that can be seen of it, passes all that ends or keeps it.


def do_a_step(one):
    attempt(row(one))


def vote(one):
    row(one).stator.send("approve", by="ann")


def send_early(one):
    row(one).stator.send("pay", key="invoice 7")


def fail_an_attempt(one):
    change(one, broken=True)
    attempt(row(one))


def say_progress(one):
    change(one, state_ready=True, state_next_attempt=None)
    [claim] = [claim for claim in claim_all(operations_of(type(one))) if claim.pk == one.pk]
    claim.progress(1, 2)
    claim.show_news()
    claim.operations.release_token(claim.token)


KINDS = {do_a_step: Step, vote: Event, send_early: Event, fail_an_attempt: Report, say_progress: Progress}


def remembered(one):
    """What a new object with the key has of the past."""
    now = row(one)
    facts = gather(type(one), now.pk, further=[SentEvents])
    fresh = dict(steps(now)), [event.name for event in facts.of(SentEvents)], facts.report, facts.progress
    with suppress(EventRefused):
        assert now.stator.send("pay", key="invoice 7").outcome == "kept"
    return [each for each in fresh if each]


def is_paused(one):
    return "paused" in [reason.code for reason in row(one).explain()]


def by_instance(one):
    row(one).delete()


def by_queryset(one):
    type(one).objects.filter(pk=one.pk).delete()


def by_cascade(one):
    party = Party.objects.create(name="p")
    change(one, party=party)
    party.delete()


def by_cascade_with_signals(one):
    """Then the collector loads the rows."""
    with hearing(pre_delete, Contract):
        by_cascade(one)


def by_delete_after(one):
    change(one, state="paid", state_ready=False, state_changed=ago(100))
    operations = operations_of(type(one))
    assert delete_due(operations, 10) == 1


def by_raw_sql(one):
    raw(type(one)).filter(pk=one.pk)._raw_delete("default")


DELETES = [by_instance, by_queryset, by_cascade, by_cascade_with_signals, by_delete_after, by_raw_sql]


@pytest.mark.parametrize("delete", DELETES)
def test_new_object_has_no_past(delete):
    one, other = made(), Contract.objects.create(name="b")
    for write in KINDS:
        write(one)
        write(other)
    assert all(records.objects.filter(object_pk="a").exists() for records in KINDS.values())
    pause_objects(Contract, "default", ["a", "b"], Action.of(Contract, "pause", "eve", "both look odd"))
    assert is_paused(one)
    delete(one)
    if delete is not by_raw_sql:
        for records in KINDS.values():
            assert set(records.objects.values_list("object_pk", flat=True)) == {"b"}
    again = made()
    assert not is_paused(again)
    assert is_paused(other)
    assert remembered(again) == []


@pytest.mark.needs("steps")
@pytest.mark.parametrize("model", [Contract, PartContract])
def test_key_of_a_new_object_is_none_of_an_earlier_one(model):
    for delete in (by_instance, by_queryset, by_raw_sql):
        one = made(model)
        attempt(row(one))
        delete(one)
    [one] = model.objects.bulk_create([model(**named(model))])
    attempt(row(one))
    assert len(calls) == len(set(keys())) == 4


def test_queryset_that_can_be_deleted_at_once_still_is(django_assert_num_queries):
    for number in range(5):
        Contract.objects.create(name=str(number))
    # The second asks whether there are records.
    with django_assert_num_queries(2):
        assert Contract.objects.filter(amount=1).delete() == (5, {"testapp.Contract": 5})
    made()
    attempt(row(Contract(pk="a")))
    vote(Contract(pk="a"))
    with django_assert_num_queries(4):
        Contract.objects.filter(amount=1).delete()
    assert not Step.objects.exists()
    assert not Event.objects.exists()


@pytest.mark.needs("reports")
def test_page_shows_where_a_life_begins():
    one = made()
    for state in ("approved", "drafted", "approved"):
        row(one).transition_perform(state)
    assert "life" not in [event.kind for event in timeline_of(row(one)).events]
    by_instance(one)
    one = made()
    assert [event.kind for event in timeline_of(row(one)).events] == ["life", "hand", "hand", "hand"]
    row(one).transition_perform("approved")
    assert [event.kind for event in timeline_of(row(one)).events] == ["hand", "life", "hand", "hand", "hand"]


# What is seen of each kind of record, and what ends it


def sent_to(one):
    return gather(type(one), one.pk, further=[SentEvents]).of(SentEvents)


SEEN = {
    "steps": lambda one: list(steps(row(one))),
    "votes": lambda one: [event.name for event in sent_to(one) if event.voter],
    "kept events": lambda one: [event.name for event in sent_to(one) if event.until],
    "event keys": lambda one: row(one).stator.send("pay", key="invoice 7").outcome == "repeated",
    "idempotency key": lambda one: life_of(row(one)).key("contract", one.pk, row(one).state),
}
OF_LIFE = {"kept events", "event keys"}


def go_and_return(one):
    row(one).transition_perform("audited")
    by_hand(one)


def wish_again(one):
    for amount in (2, 1):
        type(one).objects.filter(pk=one.pk).update(amount=amount)


def move_and_undo(one):
    action = Action.of(type(one), "move", "eve", moves=True)
    type(one).stator.filter(pk=one.pk).move("audited", action=action)
    assert undo(action.pk, "default", actor="eve", reason="").count == 1


def fail_and_return(one):
    type(one).stator.filter(pk=one.pk).retry()
    [claim] = claim_all(operations_of(type(one)))
    claim.operations.record([(claim, Moved(claim.state.failure_state, None))])
    by_hand(one)


def rest_and_prune(one):
    label = type(one)._meta.label_lower
    Event.objects.create(model_label=label, object_pk="of another type", name="pay", version=0)
    advance(7200, type(one))
    for model in (Event, Step):
        model.objects.update(at=ago(7200))
    assert own_tables.prune("default", 100, errors=3600, history=3600, stats=3600) == 1


@pytest.mark.parametrize(
    ("act", "ends"),
    [
        (go_and_return, True),
        (wish_again, True),
        (move_and_undo, False),
        (fail_and_return, False),
        (rest_and_prune, False),
    ],
)
@pytest.mark.parametrize("model", MODELS)
def test_each_kind_lasts_as_long_as_what_it_belongs_to(model, act, ends):
    one = made(model)
    do_a_step(one)
    vote(one)
    send_early(one)
    before = {kind: see(one) for kind, see in SEEN.items()}
    assert all(before.values())
    act(one)
    after = {kind: see(one) for kind, see in SEEN.items()}
    assert None not in after.values()
    assert {kind for kind in SEEN if after[kind] != before[kind]} == (SEEN.keys() - OF_LIFE if ends else set())


# Beside workers of version 1.1, whose statements do not know the columns


def test_steps_of_an_earlier_release_stay_valid_until_there_is_a_new_wish():
    for model in (Contract, NumberedContract):
        one = made(model)
        attempt(row(one))
        Step.objects.update(life=0, visit=None)
        attempt(row(one))
        fail_and_return(one)
        attempt(row(one))
        assert len(calls) == 1
        model.objects.update(amount=7)
        attempt(row(one))
        assert len(calls) == 2
        calls.clear()
        row(one).delete()


def test_visit_goes_on_when_its_state_is_renamed():
    one = made()
    attempt(row(one))
    RenameState("contract", "drafted", "audited")._rename(connection, Contract, "drafted", "audited")
    vote_of_before, now = life_of(one).visit, row(one)
    assert (now.state, life_of(now).visit, now.state_version) == ("audited", vote_of_before, 1)
    raw(Contract).update(**columns.renaming(state_field(Contract), Contract.state_graph.drafted))
    now = row(one)
    assert (now.state, life_of(now).visit, now.state_version) == ("drafted", vote_of_before, 2)
    Contract.stator.all().retry()
    fail(one)
    by_hand(one)
    attempt(row(one))
    assert [name for name, _ in calls] == ["price"]
