"""Models with a composite primary key are moved, recorded, explained and undone like others."""

import io
import json
from functools import partial
from uuid import UUID

import pytest
from django.contrib import admin
from django.core.management import CommandError, call_command
from django.db import models
from django.test.utils import isolate_apps

from stator.checks.tables import check_watches
from stator.graph import State, StateGraph
from stator.models import History, StateField, StatorModel
from stator.testing import drain
from stator.worker import duties
from tests.stator.making import ago, operations_of, raw, row
from tests.testapp.keys import BigKeyed, Door, Ledger, PlaceInHall, Seat, SeatGraph

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


@pytest.mark.parametrize("make", [partial(Seat, hall=1), partial(Ledger, owner=OWNER)], ids=["numbers", "uuid"])
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


@pytest.mark.needs("related")
@isolate_apps("tests.testapp")
def test_edges_by_related_objects_are_refused():
    class BenchGraph(StateGraph):
        away = State()
        there = State()
        away.when_all("door", in_=["last"]).to(there)

    class Bench(StatorModel):
        pk = models.CompositePrimaryKey("door", "number")
        door = models.ForeignKey(Door, models.CASCADE)
        number = models.IntegerField()
        state = StateField(BenchGraph)

        class Meta:
            app_label = "testapp"

    [error] = check_watches(Bench)
    assert error.id == "stator.E109"
    assert "Bench has a composite primary key; use waits_for or events" in error.msg


def test_commands_take_a_key_with_commas():
    seats()
    assert stator("move", "testapp.Seat", "sold", "1,1", "--reason", "why")["missing"] == []
    assert stator("explain", "testapp.Seat", "(1, 1)")["pk"] == "1,1"
    with pytest.raises(CommandError, match="composite primary key; its statements depend on"):
        stator("statements", "testapp.Seat")
    with pytest.raises(CommandError, match=r"'1' cannot be the primary key of testapp\.Seat"):
        stator("explain", "testapp.Seat", "1")


@pytest.mark.needs("related", "reconcile")
def test_objects_wait_for_others_and_are_reconciled():
    hall, door, other = BigKeyed.objects.create(), Door.objects.create(), Door.objects.create()
    PlaceInHall.objects.bulk_create([PlaceInHall(hall=hall, number=number, door=door) for number in range(3)])
    drain(PlaceInHall)
    assert set(raw(PlaceInHall).values_list("state", flat=True)) == {"first"}
    assert PlaceInHall.objects.first().explain()[0].code == "waits_for"
    drain(Door)
    drain(PlaceInHall)
    assert set(raw(PlaceInHall).values_list("state", flat=True)) == {"last"}
    place = PlaceInHall.objects.first()
    place.door = other
    place.save()
    assert row(place).state == "first"
    PlaceInHall.objects.filter(number__gt=0).update(door=other)
    assert set(raw(PlaceInHall).values_list("state", flat=True)) == {"first"}


def test_admin_leaves_the_model_out():
    assert not admin.site.is_registered(Seat)
