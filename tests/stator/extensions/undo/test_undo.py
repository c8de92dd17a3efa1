"""Undo of manual actions: what is untouched goes back as it was, what is not is named and left."""

from contextlib import suppress

import pytest
from django.db import IntegrityError

from stator.db import own_tables
from stator.extensions.undo import undoing
from stator.models import Action, Before, History, Pause
from stator.rows import transitions
from stator.rows.actions import recent_actions
from stator.rows.life import life_of
from stator.rows.unlocks import HOLDS, unlock_and_hold
from stator.signals import transitioned
from stator.undo import undo
from tests.stator.making import LEASED, ago, at_once, change, claim_all, operations_of, put, raw, row
from tests.stator.running import hearing
from tests.testapp.basic import Page, Step
from tests.testapp.keys import Seat
from tests.testapp.operators import Parcel

pytestmark = pytest.mark.django_db(transaction=True)

FAILING = {"state_ready": False, "state_failures": 2, "state_attempts": 5, "state_attempted": ago(90)}
ROWS = {
    "ready": {},
    "backing off": {**FAILING, "state_next_attempt": ago(-5000)},
    "in quarantine": {"state_ready": False, "state_crashes": 3},
    "at rest": {"state": "delivered", "state_ready": False, "state_version": 4, "state_changed": ago(9000)},
    "external": {"state": "sent", "state_ready": False},
}


def columns_of(instance):
    now = row(instance)
    values = {name: value for name, value in vars(now).items() if name.startswith("state")}
    return {**values, "state_visit": life_of(now).visit}


def move(rows, state="returned"):
    action = Action.of(rows.model, "move", "anna", "by mistake", moves=True)
    transitions.move_by_hand(rows, state, actor="anna", action=action)
    return action


def back(action, **given):
    return undo(action.pk, "default", actor="eve", reason="it was wrong", **given)


@pytest.mark.parametrize("before", ROWS.values(), ids=ROWS)
def test_untouched_object_is_as_it_was_but_for_its_version(before):
    one = put(Parcel, **before)
    was = columns_of(one)
    action = move(raw(Parcel))
    done = back(action)
    assert (done.count, done.left) == (1, {})
    now = columns_of(one)
    assert now.pop("state_version") == was.pop("state_version") + 2
    if was["state_ready"]:
        # Spelled as a time, a null due time is the same: now, in its place in line.
        assert now["state_next_attempt"] == was["state_changed"]
        was["state_next_attempt"] = was["state_changed"]
    assert now == was


def test_object_that_was_held_is_free_and_due_when_that_lease_would_have_ended():
    one = put(Parcel, **LEASED, state_attempts=1, state_attempted=ago(3))
    back(move(raw(Parcel)))
    now = row(one)
    assert (now.state, now.state_claim, now.state_ready, now.state_attempts) == ("packed", None, False, 1)
    assert now.state_next_attempt == LEASED["state_locked_until"]


def claimed(one):
    claim_all(operations_of(Parcel))


def attempted(one):
    [claim] = claim_all(operations_of(Parcel))
    change(one, state_claim=None, state_locked_until=None, state_next_attempt=ago(-60))


TOUCHES = {
    "moved": (lambda one: raw(Parcel).get(pk=one.pk).transition_perform("delivered"), "is in delivered now"),
    "moved away and back": (
        lambda one: [one.transition_perform(to) for to in ("sent", "stamped")],
        "is in stamped now",
    ),
    "claimed": (claimed, "is being attempted in stamped"),
    "attempted": (attempted, "was attempted or made due since"),
    "made due": (lambda one: change(one, state_ready=True, state_next_attempt=None), "was attempted or made due since"),
    "retried by an operator": (lambda one: Parcel.stator.retry(actor="bob"), "was attempted or made due since"),
    "gone": (lambda one: raw(Parcel).filter(pk=one.pk).delete(), "is gone"),
}


@pytest.mark.parametrize(("touch", "why"), TOUCHES.values(), ids=TOUCHES)
def test_touched_object_is_named_and_left_alone(touch, why):
    one = put(Parcel)
    action = move(raw(Parcel), "stamped")
    touch(one)
    left = raw(Parcel).filter(pk=one.pk).values().first()
    other = put(Parcel, state="sent")
    done = back(action)
    assert (done.count, list(done.left)) == (0, [str(one.pk)])
    assert why in done.left[str(one.pk)]
    assert raw(Parcel).filter(pk=one.pk).values().first() == left
    assert row(other).state == "sent"


def test_undo_is_an_action_with_author_and_reason_and_can_be_undone():
    one = put(Parcel, **ROWS["backing off"])
    action = move(raw(Parcel))
    with hearing(transitioned) as heard:
        done = back(action)
    assert [(each.source, each.to) for _, values in heard for each in values["moves"]] == [("returned", "packed")]
    assert [(entry.source, entry.to, entry.actor, entry.reason) for entry in History.objects.order_by("pk")] == [
        ("packed", "returned", "anna", ""),
        ("returned", "packed", "eve", f"undid action {action.pk}: it was wrong"),
    ]
    own = Action.objects.get(undoes=action.pk)
    assert (own.kind, own.actor, own.reason, own.count) == ("undo", "eve", "it was wrong", 1)
    assert [each.pk for each in recent_actions("default")] == [own.pk, action.pk]
    assert back(done.action).count == 1
    assert row(one).state == "returned"


def test_retry_is_undone_with_errors_and_due_time():
    rows = [put(Parcel, **ROWS["backing off"]), put(Parcel, **ROWS["in quarantine"])]
    was = [columns_of(one) for one in rows]
    Parcel.stator.retry(actor="anna")
    assert {row(one).state_ready for one in rows} == {True}
    assert back(Action.objects.get()).count == 2
    assert [columns_of(one) for one in rows] == was


def test_undone_unlock_revives_no_claim():
    one = put(Parcel, **LEASED)
    Parcel.stator.unlock(actor="anna")
    assert row(one).state_ready
    assert back(Action.objects.get()).count == 1
    now = row(one)
    assert (now.state_claim, now.state_ready, now.state_next_attempt) == (None, False, LEASED["state_locked_until"])


def test_pause_is_undone_by_itself_or_with_an_unlock_and_one_that_has_ended_is_named():
    pause = Parcel.stator.pause("packed", actor="anna", reason="maintenance")
    assert back(Action.objects.get()).count == 1
    assert not Pause.objects.active().exists()
    done = back(Action.objects.get(kind="pause"))
    assert done.left == {f"pause {pause.pk}": "has ended"}
    put(Parcel, **LEASED)
    action = Action.of(Parcel, "unlock", "anna", "stuck")
    [pausing] = HOLDS
    unlock_and_hold(raw(Parcel), action, pausing)
    assert back(action).count == 2
    assert not Pause.objects.active().exists()


def test_interrupted_undo_is_finished_by_the_next(monkeypatch):
    rows = [put(Parcel) for _ in range(5)]
    action = move(raw(Parcel))
    monkeypatch.setattr(undoing, "BATCH", 2)

    def stop(count):
        if count > 2:
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        back(action, progress=stop)
    assert sorted(row(one).state for one in rows) == ["packed"] * 2 + ["returned"] * 3
    done = back(action)
    assert (done.count, done.left) == (3, {})
    assert {row(one).state for one in rows} == {"packed"}


def test_action_without_objects_is_none_and_moves_by_programs_are_not_recorded():
    Parcel.stator.move("returned")
    one = put(Parcel)
    one.transition_perform("sent")
    Parcel.transition_perform_queryset(raw(Parcel), "delivered")
    assert not Action.objects.exists()
    assert not Before.objects.exists()


@pytest.mark.sqlite
def test_many_objects_with_keys_of_several_columns_are_moved_and_go_back():
    """SQLite refuses a statement that names a thousand such keys."""
    count = 1100
    Seat.objects.bulk_create([Seat(hall=number // 50, number=number) for number in range(count)])
    done = back(move(raw(Seat), "sold"))
    assert (done.count, done.left) == (count, {})
    assert not raw(Seat).filter(state="sold").exists()


def test_objects_that_the_database_refuses_are_named(monkeypatch):
    rows = [put(Page, title=str(number)) for number in range(3)]
    action = move(raw(Page), "published")

    def follow(self, found):
        if any(before.object_pk == str(rows[1].pk) for before in found):
            raise IntegrityError("only one draft an author")

    monkeypatch.setattr(undoing._Undoing, "_follow", follow)
    done = back(action)
    assert (done.count, done.left) == (2, {str(rows[1].pk): "is refused: only one draft an author"})
    assert [row(one).state for one in rows] == ["draft", "published", "draft"]


def test_old_and_unknown_actions_are_refused_in_one_line():
    put(Parcel)
    action = move(raw(Parcel))
    Action.objects.update(at=ago(3700))
    with pytest.raises(ValueError, match=rf"action {action.pk} was 1 h 1 m ago; an action can be undone for 1 h"):
        back(action)
    assert not recent_actions("default").exists()
    with pytest.raises(ValueError, match="there is no action 999999"):
        undo(999999, "default", actor="eve", reason="")


def test_what_objects_were_is_deleted_after_an_hour_and_the_action_with_the_history():
    put(Parcel)
    action = move(raw(Parcel))
    ages = {"errors": 100.0, "history": 8000.0, "stats": 100.0}
    own_tables.prune("default", 100, **ages)
    assert Before.objects.exists()
    Action.objects.update(at=ago(3700))
    own_tables.prune("default", 100, **ages)
    assert not Before.objects.exists()
    assert Action.objects.get() == action
    Action.objects.update(at=ago(9000))
    own_tables.prune("default", 100, **ages)
    assert not Action.objects.exists()


def test_worker_that_claims_meanwhile_is_not_overwritten():
    rows = [put(Step) for _ in range(40)]
    action = Action.of(Step, "move", moves=True)
    Step.stator.move("slow", action=action)
    found = []

    def work():
        operations = operations_of(Step)
        while claims := claim_all(operations, 3):
            found.extend(claim.pk for claim in claims)

    done, *_ = at_once(lambda: back(action), work, work)
    assert done.count + len(done.left) == len(rows)
    held = {one.pk for one in rows if row(one).state_claim is not None}
    assert {int(key) for key in done.left} | {pk for pk in found if row_state(Step, pk) == "new"} >= held
    for key in done.left:
        assert row_state(Step, key) == "slow"


def row_state(model, pk):
    return raw(model).get(pk=pk).state


def test_change_by_the_last_of_very_many_later_actions_is_seen():
    one = put(Parcel, **ROWS["backing off"])
    action = Action.of(Parcel, "retry", "anna")
    retried = raw(Parcel).filter(pk=one.pk)
    Parcel.stator.filter(pk=one.pk).retry(action=action)
    Action.objects.bulk_create([Action(model_label="testapp.parcel", kind="retry") for _ in range(1001)])
    last = Action.of(Parcel, "retry", "ben")
    retried.update(state_next_attempt=ago(-60), state_ready=False)
    Parcel.stator.filter(pk=one.pk).retry(action=last)
    assert back(action).count == 0
