"""Due times that are moved by hand."""

from datetime import UTC, datetime, timedelta

import pytest
from asgiref.sync import async_to_sync
from django.utils import timezone

from stator.models import Action, History, Now
from stator.testing import advance, drain
from stator.undo import undo
from tests.stator.making import LEASED, ago, claim_all, operations_of, put, raw, row
from tests.stator.rows.test_retry_at_rate import seconds_until_due
from tests.testapp.basic import Step
from tests.testapp.operators import Parcel

pytestmark = pytest.mark.django_db(transaction=True)

NEAR = pytest.approx(3600, abs=60)


@pytest.mark.parametrize(
    "at",
    [3600, 3600.0, timedelta(hours=1), timezone.now() + timedelta(hours=1), Now() + timedelta(hours=1)],
    ids=["int", "float", "timedelta", "datetime", "expression"],
)
def test_waiting_object_is_due_then_and_not_before(at):
    step = put(Step, state_ready=not isinstance(at, int), state_next_attempt=ago(-60) if isinstance(at, int) else None)
    until = 3600 if not isinstance(at, datetime) else (at - timezone.now()).total_seconds()
    assert step.stator.due(at) is True
    assert not step.state_ready
    assert seconds_until_due(step) == pytest.approx(until, abs=60)
    assert claim_all(operations_of(Step)) == []
    assert drain(Step) == 0
    advance(3600, Step)
    assert drain(Step) == 1


def test_time_that_has_passed_makes_the_object_ready_and_keeps_its_errors():
    for at in (None, 0, -5, timezone.now() - timedelta(days=1)):
        step = put(Step, state_ready=False, state_failures=2, state_next_attempt=ago(-7200))
        assert step.stator.due(at)
        now = row(step)
        assert (now.state_ready, now.state_failures) == (True, 2)
        assert [claim.pk for claim in claim_all(operations_of(Step))] == [step.pk]


def test_many_are_due_then_and_those_whose_due_time_does_not_decide_are_left_alone_and_not_counted():
    free = [put(Step), put(Step, state_ready=False, state_next_attempt=ago(-5)), put(Step, state="late")]
    others = [
        put(Step, **LEASED),
        put(Step, state="outside", state_ready=False),
        put(Step, state="done", state_ready=False),
        put(Step, state_ready=False, state_crashes=3),
    ]
    left = [raw(Step).filter(pk=other.pk).values().get() for other in others]
    assert Step.stator.all().due(timedelta(hours=1)) == len(free)
    assert [seconds_until_due(step) for step in free] == [NEAR] * 3
    assert [other.stator.due(None) for other in others] == [False] * 4
    assert [raw(Step).filter(pk=other.pk).values().get() for other in others] == left


def test_author_and_reason_are_in_the_history_and_it_is_undone():
    """Without an author one object is moved by a program, and nothing is recorded."""
    put(Parcel).stator.due(3600)
    assert (Action.objects.count(), History.objects.count()) == (0, 0)
    raw(Parcel).all().delete()
    parcel = put(Parcel, state_ready=False, state_failures=2, state_next_attempt=ago(-5000))
    was = raw(Parcel).values().get()
    assert Parcel.stator.filter(pk=parcel.pk).due(3600, actor="anna", reason="closed today") == 1
    entries = History.objects.order_by("pk").values_list("actor", "reason", "kind")
    assert list(entries) == [("anna", "made due in 3600 s: closed today", "hand")]
    assert undo(Action.objects.get().pk, "default", actor="eve", reason="").count == 1
    assert raw(Parcel).values().get() == was


def test_unsaved_changes_of_the_instance_stay():
    step = put(Step, name="before")
    step.name, step.state = "after", "late"
    step.stator.due(3600)
    assert (step.name, str(step.state)) == ("after", "late")


def test_asynchronous_twins():
    step = put(Step)

    assert async_to_sync(step.stator.adue)(60)
    assert async_to_sync(Step.stator.filter(pk=step.pk).adue)(3600) == 1
    assert seconds_until_due(step) == NEAR


@pytest.mark.parametrize("zone", [None, UTC], ids=["naive", "aware"])
@pytest.mark.parametrize("use_tz", [True, False])
def test_times_with_and_without_a_zone_are_the_sites(settings, zone, use_tz):
    settings.USE_TZ = use_tz
    at = datetime.now(zone) + timedelta(days=2)
    step = raw(Step).create()
    assert step.stator.due(at)
    found = row(step).state_next_attempt
    wanted = at if timezone.is_aware(at) else timezone.make_aware(at)
    found = found if timezone.is_aware(found) else timezone.make_aware(found)
    assert abs(found - wanted) < timedelta(seconds=1)


@pytest.mark.parametrize("at", ["tomorrow", True, float("nan"), float("inf"), 1e12, datetime(4000, 1, 1, tzinfo=UTC)])
def test_other_values_are_refused_and_nothing_is_written(at):
    step = put(Step)
    with pytest.raises(ValueError, match="is no due time; give a datetime"):
        Step.stator.all().due(at)
    assert row(step).state_ready
