"""Moves between states, by edge and by hour."""

from datetime import timedelta

import pytest
from django.utils import timezone

from stator.models import Depth, Event, Stats
from stator.survey.flow import flows

pytestmark = pytest.mark.django_db

LABEL = "testapp.parcel"
NOW = timezone.now().replace(hour=10, minute=15, second=0, microsecond=0)


def stats(hours_ago, source, to, handled, **counts):
    hour = NOW.replace(minute=0) - timedelta(hours=hours_ago)
    return Stats.objects.create(model_label=LABEL, hour=hour, source=source, to=to, handled=handled, **counts)


def flow(**options):
    return flows("default", [LABEL], NOW, **options)[LABEL]


class TestFlows:
    def test_flow_of_the_last_hour_takes_the_missing_part_from_the_hour_before(self):
        stats(0, "packed", "stamped", 10)
        stats(1, "packed", "stamped", 100)
        stats(2, "packed", "stamped", 1000)
        assert flow().edges["packed", "stamped"] == pytest.approx(10 + 0.75 * 100)

    def test_moves_by_events_of_the_last_hour_are_flow_but_no_attempts(self):
        stats(0, "submitted", "approved", 2)
        for minutes, to in ((1, "approved"), (59, "rejected"), (61, "closed")):
            at = NOW - timedelta(minutes=minutes)
            Event.objects.create(model_label=LABEL, object_pk="7", name="e", at=at, source="submitted", to=to)
        # One of two senders moves nothing.
        Event.objects.create(model_label=LABEL, object_pk="7", name="e", at=NOW, source="submitted")
        found = flow()
        assert found.edges == {("submitted", "approved"): 3, ("submitted", "rejected"): 1}
        assert found.moved == 2

    def test_hours_of_the_last_day_end_with_this_one(self):
        stats(0, "packed", "stamped", 3)
        stats(23, "packed", "", 5, failed=2)
        stats(24, "packed", "", 7)
        handled = flow().handled
        assert len(handled) == 24
        assert (handled[-1].when, handled[-1].count) == ("10:00", 3)
        assert (handled[0].when, handled[0].count, handled[0].bad) == ("11:00", 5, 2)
        assert sum(point.count for point in handled) == 8

    def test_attempts_are_told_apart_by_their_outcomes(self):
        stats(0, "packed", "stamped", 30)
        stats(1, "packed", "lost", 3, failed=3)
        stats(2, "packed", "", 10, failed=4)
        found = flow()
        assert "" not in {to for _, to in found.edges}
        assert (found.moved, found.stayed, sum(point.bad for point in found.handled)) == (30, 6, 7)

    def test_minutes_of_the_last_hour_have_the_queue_and_its_longest_wait(self):
        for minutes, queued, oldest in ((1, 5, 2.4), (59, 50, 70), (60, 7, 9)):
            minute = NOW - timedelta(minutes=minutes)
            Depth.objects.create(model_label=LABEL, minute=minute, queued=queued, oldest=oldest)
        found = flow(period="hour")
        assert (len(found.queued), len(found.waits)) == (60, 60)
        assert [(point.when, point.count) for point in found.queued if point.count] == [("09:16", 50), ("10:14", 5)]
        assert [point.count for point in found.waits if point.count] == [70, 2]

    def test_latest_sample_is_not_the_most_of_its_hour_and_not_an_old_one(self):
        for minutes, queued in ((1, 5), (3, 50)):
            minute = NOW - timedelta(minutes=minutes)
            Depth.objects.create(model_label=LABEL, minute=minute, queued=queued)
        latest = flow().latest
        assert flow().queued[-1].count == 50
        assert (latest.when, latest.count) == ("10:14", 5)
        Depth.objects.all().delete()
        Depth.objects.create(model_label=LABEL, minute=NOW - timedelta(minutes=6), queued=3)
        assert flow().latest is None
