"""Models with a composite primary key are moved, recorded, explained and undone like others."""

import io
import json
from functools import partial
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command

from stator.models import History
from stator.worker import duties
from tests.stator.making import ago, operations_of, raw
from tests.testapp.keys import Ledger, Seat, SeatGraph

pytestmark = pytest.mark.usefixtures("transactional_db")

OWNER = UUID("12345678-1234-5678-1234-567812345678")


def seats(count=3, **columns):
    made = [Seat.objects.create(hall=hall, number=number) for hall in (1, 2) for number in range(count)]
    if columns:
        raw(Seat).update(**columns)
    return made


def perform(duty, operations=None):
    duties.perform(duty, operations or operations_of(Seat), stopped=lambda: False)


def stator(*arguments):
    out = io.StringIO()
    call_command("stator", *map(str, arguments), "--json", stdout=out)
    return json.loads(out.getvalue())


@pytest.mark.parametrize(
    "make",
    [partial(Seat, hall=1), pytest.param(partial(Ledger, owner=OWNER), marks=pytest.mark.sqlite)],
    ids=["numbers", "uuid"],
)
def test_statements_take_thousands_of_keys_and_texts_of_all_parts(make):
    """SQLite takes no more than 1,000 conditions one in another, and fewer functions."""
    count, model = 1100, make.func
    raw(model).bulk_create([make(number=number) for number in range(count)])
    raw(model).update(state_ready=False, state_next_attempt=ago(1))
    perform(duties.MARK_READY, operations_of(model))
    assert raw(model).filter(state_ready=True).count() == count
    assert model.stator.explain_counts() == {"no_worker": count}
    assert model.stator.with_report().count() == 0
    end = "sold" if model is Seat else "last"
    assert model.stator.move(end, actor="me") == count
    assert History.objects.filter(to=end, object_pk=str(make(number=7).pk)).count() == 1


def test_rows_are_moved_by_conditions_and_timeouts_and_unlocked():
    seats(note="gone", state_ready=False)
    for duty in duties.duties_of(duties.When.PASS):
        perform(duty)
    assert set(raw(Seat).values_list("state", flat=True)) == {"failed"}
    raw(Seat).update(state="held", state_changed=ago(4000), state_ready=False)
    for duty in duties.duties_of(duties.When.PASS):
        perform(duty)
    assert set(raw(Seat).values_list("state", flat=True)) == {"failed"}
    assert History.objects.filter(to="failed").count() == 12
    raw(Seat).update(state="free", note="", state_ready=True)
    claims = operations_of(Seat).claim([SeatGraph.free], 9)
    assert Seat.stator.filter(hall=1).unlock(actor="me") == 3
    assert sum(claim.still_mine() for claim in claims) == 3


def test_commands_take_a_key_with_commas():
    seats()
    assert stator("move", "testapp.Seat", "sold", "1,1", "--reason", "why")["missing"] == []
    assert stator("explain", "testapp.Seat", "(1, 1)")["pk"] == "1,1"
    with pytest.raises(CommandError, match="composite primary key; its statements depend on"):
        stator("statements", "testapp.Seat")
    with pytest.raises(CommandError, match=r"'1' cannot be the primary key of testapp\.Seat"):
        stator("explain", "testapp.Seat", "1")
