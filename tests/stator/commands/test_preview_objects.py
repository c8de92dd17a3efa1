"""``manage.py stator preview``: which objects it attempts, leaves alone and counts."""

import pytest

from stator.models import Pause
from tests.stator.commands.previewing import HELD, run
from tests.stator.making import ago, change, locked_elsewhere, put
from tests.testapp.basic import Step
from tests.testapp.operators import Parcel
from tests.testapp.power import Customer, Order
from tests.testapp.waiting import Rollout

pytestmark = pytest.mark.django_db(transaction=True, databases=["default", "other"])


def test_claimed_quarantined_and_unknown_objects_are_left_alone_and_counted(asked):
    put(Parcel)
    put(Parcel, **HELD)
    put(Parcel, state_crashes=3)
    change(put(Parcel), state="forgotten")
    document = asked("testapp.Parcel")
    assert document["attempted"] == 1
    assert document["left_alone"] == {"claimed": 1, "locked": 0, "quarantined": 1, "unknown": 1}
    assert asked("testapp.Parcel", "--all-waiting")["attempted"] == 1


@pytest.mark.postgresql  # SQLite has no locks of rows
def test_locked_objects_are_left_alone_and_counted(asked):
    put(Parcel)
    with locked_elsewhere(put(Parcel)):
        document = asked("testapp.Parcel")
    assert (document["attempted"], document["left_alone"]["locked"]) == (1, 1)


def test_objects_that_are_not_due_wait_unless_they_are_asked_for(asked):
    put(Parcel, state_ready=False, state_next_attempt=ago(-600))
    put(Parcel, state_ready=False, state_next_attempt=ago(600))
    assert asked("testapp.Parcel")["attempted"] == 1
    assert asked("testapp.Parcel", "--all-waiting")["attempted"] == 2


def test_paused_objects_are_attempted(asked):
    """Pausing, looking at the preview and resuming is one way to deploy."""
    put(Parcel)
    Parcel.stator.pause()
    assert asked("testapp.Parcel")["attempted"] == 1
    assert Pause.objects.active().exists()


def test_state_and_lookups_choose(asked):
    put(Parcel, orders="wait")
    put(Parcel, address="Main Street")
    put(Parcel, state="stamped")
    assert [each["from"] for each in asked("testapp.Parcel", "--state", "stamped")["outcomes"]] == ["stamped"]
    assert asked("testapp.Parcel", "--where", "address__startswith=Main")["attempted"] == 1
    both = asked("testapp.Parcel", "--where", "orders=wait", "--where", "address=Main Street")
    assert both["attempted"] == 0


def test_limit_is_shared_by_the_states(asked):
    for _ in range(5):
        put(Parcel)
    for _ in range(2):
        put(Parcel, state="stamped")
    document = asked("testapp.Parcel", "--limit", 4)
    assert ({each["from"]: each["count"] for each in document["outcomes"]}, document["more"]) == (
        {"packed": 2, "stamped": 2},
        True,
    )
    assert not asked("testapp.Parcel", "--limit", 7)["more"]


def test_what_happens_without_a_handler_is_counted(asked):
    put(Order, amount=200)
    put(Order, customer=put(Customer, blocked=True))
    put(Order, amount=500, **HELD)
    document = asked("testapp.Order")
    assert document["without_handler"] == [
        {"from": "waiting", "what": "condition met", "to": "working", "count": 1},
        {"from": "waiting", "what": "condition met", "to": "shipped", "count": 1},
    ]
    assert document["attempted"] == 0


def test_timeouts_renames_and_deletions_are_counted(asked):
    change(put(Step), state="older")
    put(Step, state="outside", state_ready=False, state_changed=ago(8000))
    put(Step, state="done", state_ready=False, state_changed=ago(90_000))
    document = asked("testapp.Step")
    assert {(each["from"], each["what"], each["to"]) for each in document["without_handler"]} == {
        ("older", "renamed", "renewed"),
        ("outside", "times out", "failed"),
        ("done", "deleted", ""),
    }
    assert document["left_alone"]["unknown"] == 0
    text = run("testapp.Step")
    assert "older -> renewed: renamed" in text
    assert "done is deleted" in text


def test_late_object_times_out(asked):
    put(Rollout, state_changed=ago(8000), build=None)
    # Its handler moves it; a move is no timeout.
    assert {each["what"] for each in asked("testapp.Rollout")["outcomes"]} == {"moves"}
