"""Statistics by hour, day and month of the current time zone."""

import datetime
from unittest import mock

import pytest
from django.test import override_settings
from django.utils import timezone

from stator.models import Depth, Stats
from stator.rows.stay import Stay
from tests.testapp.keys import BigKeyed, BigProxy, Branch
from tests.testapp.models import Line

pytestmark = pytest.mark.django_db

NOON = datetime.datetime(2026, 3, 15, 12, 30, tzinfo=datetime.UTC)


def add(hour, handled, label="testapp.line", **columns):
    hour = hour.replace(minute=0)
    return Stats.objects.create(model_label=label, hour=hour, handled=handled, source="first", **columns)


def handled(model=Line, now=NOON):
    with mock.patch.object(timezone, "now", return_value=now):
        return Stats.get_for_model(model).most_recent_handled()


@override_settings(TIME_ZONE="UTC")
def test_handled_is_by_hour_day_and_month():
    add(NOON, 1)
    add(NOON - datetime.timedelta(hours=1), 10, to="second")
    add(NOON - datetime.timedelta(hours=12), 100)
    add(NOON - datetime.timedelta(hours=13), 1000)
    add(NOON - datetime.timedelta(days=14), 10_000)
    add(NOON - datetime.timedelta(days=15), 100_000)
    add(NOON, 7, label="testapp.other")
    assert handled() == (1, 111, 11_111)
    # The day is that of the time zone.
    Stats.objects.all().delete()
    add(datetime.datetime(2026, 3, 14, 14, tzinfo=datetime.UTC), 1)
    add(datetime.datetime(2026, 3, 14, 15, tzinfo=datetime.UTC), 10)
    with override_settings(TIME_ZONE="Asia/Tokyo"):
        assert handled() == (0, 10, 11)


def test_counts_of_one_edge_are_added_up():
    for _ in range(3):
        Stats.add("default", "testapp.line", "first", "second", shard=1, handled=5, failed=2)
    Stats.add("default", "testapp.line", "first", "second", shard=2, handled=1, failed=0)
    assert sorted(Stats.objects.values_list("shard", "handled", "failed")) == [(1, 15, 6), (2, 1, 0)]
    assert Stats.get_for_model(Line).most_recent_handled()[0] == 16


def test_time_in_states_is_by_state_and_by_edge():
    for shard, (seconds, longest) in enumerate([(60.0, 30.0), (20.0, 15.0)]):
        add(NOON, 4, to="second", shard=shard, seconds=seconds, longest=longest)
    add(NOON - datetime.timedelta(hours=23), 2, to="last", seconds=400.0, longest=399.0)
    add(NOON, 9)
    add(NOON - datetime.timedelta(hours=25), 100, to="second", seconds=1e6, longest=1e6)
    add(NOON, 1, to="second", label="testapp.other", seconds=1e6, longest=1e6)
    with mock.patch.object(timezone, "now", return_value=NOON):
        stats = Stats.get_for_model(Line)
        edges = {("first", "second"): Stay(80.0, 30.0, 8), ("first", "last"): Stay(400.0, 399.0, 2)}
        assert stats.time_on_edges() == edges
        assert stats.time_on_edges()["first", "second"].average == 10
        assert stats.time_in_states() == {"first": Stay(480.0, 399.0, 10)}
        # In whole hours, so the hour that has just begun is never all there is.
        assert stats.time_in_states(60) == {"first": Stay(80.0, 30.0, 8)}
        assert stats.time_in_states(2 * 86400)["first"].moves == 110
    assert Stay(0.0, 0.0, 0).average == 0


def test_latest_sample_of_the_queue_stands():
    Depth.sample("default", {"testapp.line": {"queued": 5, "oldest": 1.0}})
    Depth.sample("default", {"testapp.line": {"queued": 7, "oldest": 2.0}})
    Depth.objects.create(model_label="testapp.line", minute=NOON, queued=99)
    assert Stats.get_for_model(Line).most_recent_queued() in (7, 99)
    Depth.objects.filter(minute=NOON).delete()
    assert Stats.get_for_model(Line).most_recent_queued() == 7


def test_child_and_proxy_have_the_figures_of_their_parent():
    add(NOON, 5, label="testapp.bigkeyed")
    assert handled(BigKeyed) == handled(Branch) == handled(BigProxy)
    assert handled(Branch)[0] == 5
