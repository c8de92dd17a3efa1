"""At most so many ticks a second for one key, whoever asks."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from django.db import transaction

from stator.models import Report
from stator.runner import StatorRunner
from stator.testing import drain
from tasks.extensions.schedules.rates import lock_rates, prune_rates
from tasks.models import Queue, Rate, Schedule
from tasks.testing import advance
from tests.stator.making import at_once, row

NOON = datetime(2025, 6, 1, 12, tzinfo=UTC)


def after(seconds):
    return NOON + timedelta(seconds=seconds)


def fresh():
    return Rate(key="channel", free_at=after(-86400), line_until=after(-86400))


def test_one_may_fire_and_the_others_get_places_in_line():
    rate = fresh()
    assert [rate.admit(NOON, 2.0, None) for _ in range(4)] == [None, after(0.5), after(1), after(1.5)]


def test_those_in_line_fire_in_their_turn_and_none_overtakes():
    rate = fresh()
    rate.admit(NOON, 1.0, None)
    second, third = rate.admit(NOON, 1.0, None), rate.admit(NOON, 1.0, None)
    assert (second, third) == (after(1), after(2))
    # Too early, in turn, and somebody who comes new while the third waits.
    assert rate.admit(after(0.5), 1.0, second) == after(1)
    assert rate.admit(after(1), 1.0, second) is None
    assert rate.admit(after(2), 1.0, None) == after(3)
    assert rate.admit(after(2), 1.0, third) is None


def test_one_that_is_late_for_its_place_holds_up_those_behind_it():
    rate = fresh()
    rate.admit(NOON, 1.0, None)
    second, third = rate.admit(NOON, 1.0, None), rate.admit(NOON, 1.0, None)
    assert rate.admit(after(1.7), 1.0, second) is None
    assert rate.admit(after(2), 1.0, third) == after(2.7)
    assert rate.admit(after(2.7), 1.0, third) is None


@pytest.mark.django_db
class TestSchedules:
    @pytest.fixture
    def fired(self, monkeypatch):
        """The moments at which ticks of the schedules fired, as the rows have them."""
        self.keys = []
        monkeypatch.setattr(Queue, "publish_many", lambda queue, given: self.keys.extend(m["key"] for m in given))
        return self.keys

    def make(self, count, **options):
        queue = Queue.objects.create(name="ticks", actions_elsewhere=True)
        given = {"queue": queue, "action": "act", "period": 600.0, "rate_limit": 0.01, "rate_key": "a", **options}
        return [Schedule.objects.create(name="tick", entity=str(n), **given) for n in range(count)]

    def step(self, seconds=0.0):
        advance(seconds, Schedule)
        return StatorRunner([Schedule]).run_single_cycle()

    def test_one_fires_in_its_turn(self, fired):
        schedules = self.make(5)
        drain(Schedule)
        self.step(601)
        assert len(fired) == 1
        for count in range(2, 6):
            self.step(105)
            assert len(fired) == count
        assert {key.partition(":")[0] for key in fired} == {str(schedule.pk) for schedule in schedules}
        assert Report.objects.filter(message__contains="a has 0.01 ticks a second").exists()

    def test_keys_do_not_hold_each_other_up(self, fired):
        self.make(2)
        Schedule.objects.filter(entity="1").update(rate_key="b")
        drain(Schedule)
        self.step(601)
        assert len(fired) == 2

    def test_tick_that_waits_for_its_turn_keeps_its_index_and_its_successor(self, fired):
        first, second = self.make(2)
        drain(Schedule)
        planned = row(second).planned
        self.step(601)
        held = max((row(first), row(second)), key=lambda schedule: schedule.held_until is not None)
        assert (held.tick_index, held.held_until is not None) == (0, True)
        assert abs((held.planned - planned).total_seconds() + 601) < 1
        self.step(105)
        assert (row(held).tick_index, row(held).held_until) == (1, None)
        assert abs((row(held).planned - planned).total_seconds() + 105) < 2

    def test_rate_that_is_raised_counts_at_once(self, fired):
        self.make(2)
        drain(Schedule)
        self.step(601)
        held = Schedule.objects.exclude(held_until=None).get()
        held.rate_limit = 1000.0
        held.save()
        # By the new rate it waits for a millisecond.
        for _ in range(2):
            self.step(1)
        assert len(fired) == 2

    def test_rows_that_say_nothing_any_more_are_pruned(self, fired):
        self.make(1)
        drain(Schedule)
        self.step(601)
        assert (prune_rates("default"), Rate.objects.count()) == (0, 1)
        advance(86500, Schedule)
        assert (prune_rates("default"), Rate.objects.count()) == (1, 0)


@pytest.mark.postgresql
def test_workers_that_ask_at_once_are_admitted_one_by_one(transactional_db):
    """Of forty requests in eight transactions at a time, one may fire; the others are put in one line."""

    def ask():
        answers = []
        for _ in range(5):
            with transaction.atomic():
                rates, now = lock_rates("default", {"b", "a"})
                held = rates["a"].admit(now, 0.01, None)
                rates["a"].save()
                answers.append(held)
        return answers

    answers = [answer for answers in at_once(*[ask] * 8) for answer in answers]
    assert answers.count(None) == 1
    places = sorted(answer for answer in answers if answer)
    assert {(later - earlier).total_seconds() for earlier, later in pairwise(places)} == {100.0}
