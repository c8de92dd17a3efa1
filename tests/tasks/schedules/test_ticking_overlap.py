"""A tick does not overlap the one before: it waits for the end of its task, or is dropped; and what tasks carry."""

import pytest

from tasks.extensions.schedules.schedules import ScheduleGraph, _tick_lease
from tasks.models import Schedule, Task
from tests.stator.making import row
from tests.tasks.schedules.making import go


def schedule_of(queue, **options):
    return Schedule.objects.create(**{"name": "s", "queue": queue, "action": "act", "period": 60.0, **options})


def fired(schedule):
    return row(schedule).tick_index


def ticking(queue, **options):
    """A schedule whose first tick has just fired."""
    schedule = schedule_of(queue, **options)
    go()
    go(60)
    assert fired(schedule) == 1
    return schedule


@pytest.mark.needs("reports")
def test_tick_waits_for_the_end_of_the_task_before(queue):
    schedule = ticking(queue)
    [claim] = queue.claim(worker="bot-1", lease=3600)
    for _ in range(3):
        go(60)
    assert (fired(schedule), Task.objects.count()) == (1, 1)
    waiting = "waits for the task of tick 0, which has not ended"
    assert waiting in str(row(schedule).explain()[0])  # tasks.extensions.problems
    claim.resolve()
    go(3)
    # One for all that were due meanwhile.
    assert (fired(schedule), row(schedule).dropped, Task.objects.count()) == (2, 2, 2)
    # Also for one that waits.
    go(60)
    assert fired(schedule) == 2


def test_all_of_them_fire_one_after_the_other_if_missed_ticks_do(queue):
    schedule = ticking(queue, missed="all")
    for _ in range(2):
        go(60)
    for tick in range(1, 3):
        assert fired(schedule) == tick
        [claim] = queue.claim(worker="bot-1")
        claim.resolve()
        go(3)
    assert (fired(schedule), row(schedule).dropped) == (3, 0)


def test_ticks_are_dropped_if_the_schedule_says_so(queue):
    schedule = ticking(queue, overlap="skip")
    [claim] = queue.claim(worker="bot-1", lease=3600)
    for _ in range(2):
        go(60)
    claim.resolve()
    go(3)
    assert (fired(schedule), row(schedule).dropped) == (1, 2)
    go(60)
    assert fired(schedule) == 2


def test_they_fire_all_the_same_if_the_schedule_says_so(queue):
    schedule = ticking(queue, overlap="allow")
    go(60)
    go(60)
    assert fired(schedule) == 3


def test_dead_letter_holds_up_no_tick(queue):
    schedule = ticking(queue, max_attempts=1)
    [claim] = queue.claim(worker="bot-1")
    claim.fail("no")
    go(60)
    assert fired(schedule) == 2


def test_schedules_of_one_key_wait_for_the_task_they_share(queue):
    schedules = [schedule_of(queue, entity=entity, task_key="shared-{tick}") for entity in ("a", "b")]
    go()
    go(60)
    go(60)
    assert ([fired(schedule) for schedule in schedules], Task.objects.count()) == ([1, 1], 1)


def test_tasks_carry_what_the_schedule_says(queue):
    ticking(queue, entity="shop-7", priority=5, timeout=30.0, max_attempts=2, task_key="refresh-{entity}-{tick}")
    task = Task.objects.get()
    assert (task.priority, task.timeout, task.max_attempts, task.key) == (5, 30.0, 2, "refresh-shop-7-0")


@pytest.mark.parametrize(("given", "lease"), [({}, 10.0), ({"TICK_LEASE": 3.5}, 3.5), ({"TICK_LEASE": "x"}, 10.0)])
def test_lease_of_a_tick_is_a_setting(settings, given, lease):
    """A value that cannot work is told by the checks, which have to import the models first."""
    settings.STATOR_TASKS = given
    assert _tick_lease() == lease
    # This process has read it at its start.
    assert {each.lease for each in ScheduleGraph.automatic_states} == {10.0}
