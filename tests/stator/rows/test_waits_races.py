"""Objects that wait for others, and those that are moved at the same moment: none is forgotten."""

import threading

import pytest
from django.db import connections, transaction

from stator.db import chores
from stator.db.interface import new_token
from stator.db.probe import look
from stator.rows import columns
from stator.rows.claimable import Crashes
from tests.sizes import PATIENCE
from tests.stator.making import at_once, automatic, claim_all, locked_elsewhere, operations_of, raw, row
from tests.stator.rows.waiting import is_parked, waiting
from tests.testapp.waiting import Build, Rollout

pytestmark = pytest.mark.django_db

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
    assert not raw(Rollout).filter(columns.parked()).exists()
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
    assert chores.reopen(operations, 10) == 1
    assert row(rollout).state_ready
