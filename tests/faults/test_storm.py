"""Very many objects that fail at once (F30): each waits longer from time to time, and the sound ones get their turn."""

from collections import Counter

import pytest

from tests.faults.events import Kind
from tests.testapp.harmed import Failing

pytestmark = [pytest.mark.fault, pytest.mark.postgresql, pytest.mark.mariadb, pytest.mark.django_db(transaction=True)]


def overtakers(history, sound):
    """For each sound object, how often it let a failing one pass before it was claimed: the most of any of those."""
    waiting, most = {}, []
    for event, kind in zip(history.events, history.kinds(), strict=True):
        if kind is Kind.CREATE and event.pk in sound:
            waiting[event.pk] = Counter()
        elif kind is Kind.CLAIM and event.pk in waiting:
            most.append(max(waiting.pop(event.pk).values(), default=0))
        elif kind is Kind.CLAIM:
            for passed in waiting.values():
                passed[event.pk] += 1
    return most


def waits_after(history, failures):
    """The seconds until the next attempt of each object, as recorded with so many failures."""
    return [
        (event.new.next_attempt - event.at).total_seconds()
        for event in history.of(Kind.WAIT)
        if event.new.failures == failures > event.old.failures
    ]


def send_sound_ones(workers, count):
    """Make objects that do not fail, one after another; their primary keys, once all are done."""
    pks = set()
    for _ in range(count):
        pk = Failing.objects.create().pk
        workers.until(lambda pk=pk: Failing.objects.filter(pk=pk, state="done").exists())
        pks.add(str(pk))
    return pks


def test_storm_of_failures_dies_down_and_leaves_room_for_sound_objects(watch, fleet, thorough):
    poisoned = 2000 if thorough else 150
    watched = watch(Failing)
    workers = fleet("testapp.Failing", STATOR_LEASE=60)
    workers.start()
    Failing.objects.bulk_create(Failing(poisoned=True) for _ in range(poisoned))
    storm = Failing.objects.filter(poisoned=True)

    workers.until(lambda: storm.filter(state_failures__gte=2).exists())
    sound = send_sound_ones(workers, 10)
    # The next attempt of each comes at random in up to four seconds, then in up to eight.
    workers.until(lambda: not storm.filter(state_failures__lt=3).exists())
    attempts = sum(storm.values_list("state_attempts", flat=True))
    Failing.objects.update(poisoned=False)
    Failing.stator.retry()
    workers.finish(Failing)

    history = watched.history(Failing)
    passed, spread = overtakers(history, sound), waits_after(history, failures=3)
    print(f"{attempts} attempts at {poisoned} objects; sound ones were passed by each at most {max(passed)} times")
    assert len(passed) == 10
    # In line behind what was due before them, and not behind what failed meanwhile.
    assert max(passed) <= 1
    assert attempts <= 8 * poisoned
    assert len(spread) == poisoned
    # Not all at once: no quarter of a second has a quarter of them.
    assert max(sum(start <= wait < start + 0.25 for wait in spread) for start in spread) < poisoned / 4
    watched.judge()
