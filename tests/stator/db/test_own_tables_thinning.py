"""Samples of the queue: each minute's of the last two days, before that the most of each hour."""

from datetime import timedelta

import pytest
from django.test import override_settings
from django.utils import timezone

from stator.extensions.stats import chores as of_stats
from stator.models import Depth, Stats
from stator.survey.flow import flows
from tests.stator.making import ago, at_once, operations_of
from tests.testapp.basic import Step

pytestmark = pytest.mark.usefixtures("transactional_db")

LABEL, OTHER = "testapp.step", "testapp.parcel"
DAY = 86400


@pytest.fixture
def operations():
    return operations_of(Step)


def hour(days, hours=0):
    return ago(days * DAY + hours * 3600).replace(minute=0, second=0, microsecond=0)


def samples(start, *queued, label=LABEL, every=1):
    """Make samples from that minute on; the fewer rows were queued, the longer the oldest had waited."""
    Depth.objects.bulk_create(
        Depth(model_label=label, minute=start + number * timedelta(minutes=every), queued=one, oldest=1000.0 - one)
        for number, one in enumerate(queued)
    )


def kept(label=LABEL):
    return list(Depth.objects.filter(model_label=label).order_by("minute").values_list("minute", "queued", "oldest"))


def thin_all(operations, limit=1000):
    passes = []
    while thinned := of_stats.thin(operations, limit):
        passes.append(thinned)
        assert len(passes) < 100, passes
    return passes


def test_of_each_hour_the_most_queued_is_left_with_the_longest_wait(operations):
    first, second = hour(4), hour(4, -1)
    samples(first, *range(10), 500, *range(11, 60))
    samples(second, 7, 7, 3)
    samples(first, 1, 2, label=OTHER)
    assert thin_all(operations) == [65]
    assert kept() == [(first + timedelta(minutes=10), 500, 1000.0), (second, 7, 997.0)]
    assert kept(OTHER) == [(first + timedelta(minutes=1), 2, 999.0)]
    assert set(Depth.objects.values_list("hourly", flat=True)) == {True}


def test_samples_of_the_last_two_days_are_left_alone(operations):
    samples(ago(2 * DAY), 5, 6)
    samples(ago(60), 7)
    # An hour that did not end two days ago, though its first minutes are older.
    samples(ago(2 * DAY + 3500), 8, 9)
    before = kept()
    assert (thin_all(operations), kept()) == ([], before)
    assert not Depth.objects.filter(hourly=True).exists()
    assert Stats.get_for_model(Step).most_recent_queued() == 7


def test_sample_that_comes_late_is_compared_with_what_is_left_of_its_hour(operations):
    start = hour(5)
    samples(start, 3, 50, 4)
    thin_all(operations)
    samples(start + timedelta(minutes=30), 60, 1)
    assert thin_all(operations) == [3]
    assert kept() == [(start + timedelta(minutes=30), 60, 999.0)]


def test_hour_with_more_samples_than_are_read_at_once_is_thinned_in_parts(operations, monkeypatch):
    monkeypatch.setattr(of_stats, "PARTS", 10)
    samples(hour(5), *range(50)[::-1])
    thin_all(operations)
    assert [(queued, oldest) for _, queued, oldest in kept()] == [(49, 1000.0)]


@pytest.mark.parametrize("zone", ["UTC", "America/St_Johns"])
def test_charts_by_day_and_by_hour_show_what_they_did(operations, zone):
    with override_settings(TIME_ZONE=zone):
        now = timezone.localtime()
        # Minutes apart so that each falls into every part of an hour sooner or later.
        samples(ago(6 * DAY), *(number * 7919 % 10_007 for number in range(6 * 1440 // 7)), every=7)

        def charts():
            return [flows("default", [LABEL], now, period)[LABEL].queued for period in ("day", "month")]

        before = charts()
        thin_all(operations)
        assert charts() == before
        # By month one is read for each hour but for those of two days, whatever there was.
        assert not Depth.objects.filter(minute__lt=ago(2 * DAY + 7200), hourly=False).exists()
        assert 4 * 24 - 3 <= Depth.objects.filter(hourly=True).count() <= 4 * 24 + 1


def test_workers_that_thin_at_once_leave_one_of_each_hour_and_none_waits_for_another():
    hours = [hour(3, back) for back in range(12)]
    for number, start in enumerate(hours):
        samples(start, *range(number, number + 60))
    while Depth.objects.filter(hourly=False).exists():
        at_once(*(lambda: thin_all(operations_of(Step), 150) for _ in range(3)))
    assert [queued for _, queued, _ in kept()] == [number + 59 for number in reversed(range(12))]
