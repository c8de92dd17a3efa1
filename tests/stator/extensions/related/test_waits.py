"""Objects that wait for others are attempted once those are there, and never before."""

import threading

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, transaction
from django.db.models import F

from stator.db import chores
from stator.db.interface import new_token
from stator.db.probe import look
from stator.extensions.related.checks import check_waits
from stator.extensions.related.duties import reopen
from stator.extensions.related.waits import parking, waits_of
from stator.graph.outcomes import Moved
from stator.rows.claimable import Crashes
from stator.rows.due_times import parked
from stator.rows.meta import options_of
from stator.runner import StatorRunner
from stator.signals import became_ready
from stator.worker.duties import When, duties_of
from tests.sizes import PATIENCE
from tests.stator.extensions.related.waiting import is_parked, waiting
from tests.stator.making import (
    ago,
    at_once,
    automatic,
    change,
    claim_all,
    locked_elsewhere,
    operations_of,
    put,
    raw,
    row,
)
from tests.stator.running import hearing
from tests.testapp.power import Site
from tests.testapp.waiting import Build, BuildGraph, Rollout

pytestmark = pytest.mark.django_db


def test_nothing_is_claimed_that_waits_and_everything_else_is(rollouts):
    slow, built = Build.objects.create(), put(Build, state="built", state_ready=False)
    held = Rollout.objects.create(build=slow)
    free = [Rollout.objects.create(build=built), Rollout.objects.create(), Rollout.objects.create(build=built)]
    assert [claim.pk for claim in claim_all(rollouts)] == [rollout.pk for rollout in free]
    assert is_parked(held)
    assert row(held).state_attempts == 0


def test_rows_behind_any_number_of_waiting_ones_are_claimed_at_once_and_no_more_than_asked_for(rollouts):
    build = Build.objects.create()
    raw(Rollout).bulk_create([*(Rollout(build=build) for _ in range(30)), *(Rollout() for _ in range(7))])
    assert len(rollouts.claim(automatic(rollouts), 5)) == 5
    assert raw(Rollout).filter(parked()).count() == 30
    assert raw(Rollout).filter(state_ready=True, state_claim=None).count() == 2


def test_idle_worker_meets_no_row_that_waits(rollouts):
    waiting(rollouts)
    work = look(rollouts)[rollouts]
    assert (work.ready, work.due, work.suspect) == (False, False, False)
    assert not raw(Rollout).filter(state_ready=True).exists()
    assert chores.mark_ready(rollouts, 10) == 0


def test_waiting_row_is_woken_in_the_transaction_of_the_attempt_of_the_other(rollouts, builds):
    build, rollout = waiting(rollouts)
    (claim,) = claim_all(builds)
    other = waiting(rollouts)[1]
    with transaction.atomic():
        assert builds.record([(claim, Moved(BuildGraph.built))]).moves
        assert (row(rollout).state_ready, row(rollout).state_next_attempt) == (True, None)
    assert [claim.pk for claim in claim_all(rollouts)] == [rollout.pk]
    assert is_parked(other)


def test_workers_are_told_of_woken_rows_after_the_commit(rollouts, django_capture_on_commit_callbacks):
    build, _ = waiting(rollouts)
    with hearing(became_ready) as told, django_capture_on_commit_callbacks(execute=True):
        build.transition_perform("built")
        assert told == []
    assert [sender for sender, _ in told] == [Rollout]


def test_object_that_leaves_again_is_waited_for_again(rollouts):
    build, rollout = waiting(rollouts)
    # In that one it goes on.
    build.transition_perform("checked")
    assert is_parked(rollout)
    build.transition_perform("built")
    build.transition_perform("compiling")
    assert claim_all(rollouts) == []
    assert is_parked(rollout)


def test_both_relations_have_to_be_there(rollouts):
    build, first = waiting(rollouts)
    second = Rollout.objects.create(build=build, after=first)
    assert claim_all(rollouts) == []
    build.transition_perform("built")
    assert [claim.pk for claim in claim_all(rollouts)] == [first.pk]
    assert is_parked(second)
    first.transition_perform("done")
    assert [claim.pk for claim in claim_all(rollouts)] == [second.pk]


def test_row_waits_in_every_automatic_state_and_times_out_meanwhile(rollouts):
    build, rollout = waiting(rollouts)
    rollout.transition_perform("started")
    assert claim_all(rollouts) == []
    change(rollout, state="new", state_changed=ago(8000))
    assert chores.time_out(rollouts, 10).count == 1
    assert row(rollout).state == "stale"


def test_operators_have_no_way_around_waiting(rollouts):
    _, rollout = waiting(rollouts)
    assert rollout.stator.due(None) is False
    assert Rollout.stator.retry() == 1
    assert claim_all(rollouts) == []
    assert is_parked(rollout)


# What no move tells


def test_row_that_is_given_another_object_to_wait_for_is_judged_anew(rollouts):
    made = [waiting(rollouts)[1] for _ in range(4)]
    for rollout in made[:2]:
        rollout.build = None
    made[0].save()
    Rollout.objects.bulk_update(made[1:2], ["build"])
    assert Rollout.objects.filter(pk=made[2].pk, build__slow=True).update(build=None) == 1
    assert Rollout.objects.filter(pk=made[3].pk).update(build_id=None) == 1
    assert {claim.pk for claim in claim_all(rollouts)} == {rollout.pk for rollout in made}


def test_other_writes_leave_a_waiting_row_where_it_is(rollouts):
    _, rollout = waiting(rollouts)
    Rollout.objects.update(name="x")
    Rollout.objects.filter(pk=rollout.pk).update(name=F("name"))
    rollout.save(update_fields=["name"])
    assert is_parked(rollout)


def test_deleted_object_is_waited_for_no_longer(rollouts):
    build, rollout = waiting(rollouts)
    follower = Rollout.objects.create(after=rollout)
    assert claim_all(rollouts) == []
    build.delete()
    assert reopen(rollouts, 10) == 1
    assert [claim.pk for claim in claim_all(rollouts)] == [rollout.pk]
    rollout.delete()
    assert not raw(Rollout).filter(pk=follower.pk).exists()


def test_pass_reopens_what_waits_for_nothing_and_only_that(rollouts):
    build, rollout = waiting(rollouts)
    _, other = waiting(rollouts)
    change(build, state="built", state_ready=False)
    assert reopen(rollouts, 10) == 1
    assert not is_parked(rollout)
    assert is_parked(other)


def test_worker_that_starts_reopens_rows_of_a_model_that_no_longer_waits():
    operations = operations_of(Build)
    build = Build.objects.create()
    change(build, **parking())
    for duty in duties_of(When.START):
        duty.call(operations)
    assert [claim.pk for claim in claim_all(operations)] == [build.pk]


# In the test kit and in a worker


@pytest.mark.django_db(transaction=True)
def test_worker_goes_through_a_chain_of_objects_without_waiting_for_its_poll():
    build = Build.objects.create()
    before = Rollout.objects.create(build=build)
    for _ in range(5):
        before = Rollout.objects.create(build=build, after=before)
    StatorRunner([Build, Rollout], until_idle=True, heed_signals=False).run()
    assert set(raw(Rollout).values_list("state", flat=True)) == {"done"}


# Why it waits


def test_explained_by_the_object_and_its_states():
    build = Build.objects.create()
    reason, *_ = Rollout.objects.create(build=build).explain()
    expected = f"Waits for testapp.Build {build.pk}, which is in state compiling, until it is in built or broken."
    assert (reason.code, str(reason)) == ("waits_for", expected)
    numbers = {"model": "testapp.Build", "pk": str(build.pk), "state": "compiling", "until": ["built", "broken"]}
    assert reason.numbers == numbers


# What cannot be meant


@pytest.mark.parametrize(
    ("waits_for", "message"),
    [
        ([], r"waits_for=\[\] must map names of relations to lists of states"),
        ({}, r"waits_for={} must map names of relations to lists of states"),
        ({"nothing": ["a"]}, r"names 'nothing', which is not a ForeignKey or OneToOneField"),
        ({"domain": ["a"]}, r"names 'domain', which is not a ForeignKey or OneToOneField"),
        ({3: ["a"]}, r"names 3, which is not a ForeignKey or OneToOneField"),
        ({"plan": []}, r"must have a list of states for 'plan'"),
        ({"plan": "done"}, r"must have a list of states for 'plan'"),
        ({"plan": [None]}, r"has a value for 'plan' that is not a state"),
        ({"plan": ["done"]}, r"'plan' leads to Plan, which is not a managed model"),
    ],
)
def test_wrong_declaration_is_one_line(waits_for, message):
    meta = type("StatorMeta", (), {"waits_for": waits_for})
    model = type("Site", (), {"_meta": Site._meta, "_state_field": Site._state_field, "StatorMeta": meta})
    with pytest.raises(ImproperlyConfigured, match=message) as caught:
        waits_of(model)
    assert str(caught.value).startswith("Site.StatorMeta.waits_for")
    assert "\n" not in str(caught.value)


def test_unknown_state_is_named_by_the_system_check(monkeypatch):
    meta = type("StatorMeta", (), {"waits_for": {"build": ["built", "shipped"]}})
    monkeypatch.setattr(Rollout, "StatorMeta", meta)
    options_of.cache_clear()
    waits_of.cache_clear()
    try:
        (error,) = check_waits(Rollout)
    finally:
        monkeypatch.undo()
        options_of.cache_clear()
        waits_of.cache_clear()
    assert error.id == "stator.E104"
    assert "'shipped' is not a state of BuildGraph; its states are compiling" in error.msg
    assert list(check_waits(Rollout)) == []


# Objects that wait for others, and those that are moved at the same moment: none is forgotten


each_way = pytest.mark.parametrize("implementation", ["vendor", "portable"])


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
@each_way
def test_object_that_is_being_moved_just_now_keeps_its_waiters_from_being_parked(implementation):
    rollouts = operations_of(Rollout, implementation)
    build = Build.objects.create()
    rollout = Rollout.objects.create(build=build)
    with locked_elsewhere(build):
        assert claim_all(rollouts) == []
        assert not is_parked(rollout)
        assert not row(rollout).state_ready
        assert look(rollouts)[rollouts].due
    assert chores.mark_ready(rollouts, 10) == 1
    assert claim_all(rollouts) == []
    assert is_parked(rollout)


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
@each_way
def test_move_and_parking_at_the_same_moment_lose_nobody(implementation):
    builds = [Build.objects.create() for _ in range(40)]
    rollouts = [Rollout.objects.create(build=build) for build in builds for _ in range(3)]
    found = []

    def park():
        operations = operations_of(Rollout, implementation)
        for _ in range(20):
            chores.mark_ready(operations, 1000)
            found.extend(claim.pk for claim in operations.claim(automatic(operations), 7))

    def move():
        for build in builds:
            Build.objects.get(pk=build.pk).transition_perform("built")

    at_once(park, park, move)
    left = operations_of(Rollout)
    # Without a scheduling pass: whatever was parked has been woken.
    assert not raw(Rollout).filter(parked()).exists()
    chores.mark_ready(left, 1000)
    found.extend(claim.pk for claim in claim_all(left, 1000))
    assert sorted(found) == sorted(rollout.pk for rollout in rollouts)


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
@each_way
def test_parking_holds_the_awaited_object_until_it_is_done(implementation):
    """A move that begins meanwhile waits, and then finds the row parked."""
    operations = operations_of(Rollout, implementation)
    build = Build.objects.create()
    rollout = Rollout.objects.create(build=build)
    moved = threading.Event()

    def move():
        build.transition_perform("built")
        moved.set()
        connections.close_all()

    thread = threading.Thread(target=move, daemon=True)
    with transaction.atomic():
        token = new_token(operations.worker_id)
        assert operations.claims._claim_rows(automatic(operations), 10, token, Crashes.NONE) == []
        assert is_parked(rollout)
        thread.start()
        assert not moved.wait(0.3)
    thread.join(PATIENCE)
    assert moved.is_set()
    assert row(rollout).state_ready


@pytest.mark.postgresql
@pytest.mark.django_db(transaction=True)
def test_row_that_an_application_holds_is_woken_by_the_next_pass():
    operations = operations_of(Rollout)
    build, rollout = waiting(operations)
    with locked_elsewhere(rollout):
        build.transition_perform("built")
        assert is_parked(rollout)
    assert reopen(operations, 10) == 1
    assert row(rollout).state_ready
