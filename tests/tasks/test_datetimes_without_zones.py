"""A site without time zones: its columns are meant in its own zone, on every database."""

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from stator.testing import drain
from tasks.datetimes import aware, stored
from tasks.models import Queue, Rate, Schedule, Task
from tasks.testing import advance
from tests.stator.making import row
from tests.tasks.making import make_queue
from tests.testapp.tasks import add

pytestmark = pytest.mark.django_db(transaction=True)

ZONE = "America/New_York"


@pytest.fixture(autouse=True)
def naive(settings):
    settings.TIME_ZONE = ZONE
    settings.USE_TZ = False
    assert timezone.is_naive(timezone.now())


@pytest.fixture
def queue():
    return make_queue("ticks")


def seconds_until(moment):
    return (aware(moment) - datetime.now(UTC)).total_seconds()


def test_cron_ticks_in_its_zone(queue):
    schedule = Schedule.objects.create(name="daily", queue=queue, action="act", cron="0 9 * * *", zone=ZONE)
    drain(Schedule)
    found = row(schedule)
    assert (found.state_failures, 0 < seconds_until(found.planned) <= 90_000) == (0, True)
    planned = aware(found.planned).astimezone(timezone.get_default_timezone())
    assert (planned.hour, planned.minute) == (9, 0)
    advance(seconds_until(found.planned) + 1, Schedule)
    drain(Schedule)
    [task] = Task.objects.all()
    assert datetime.fromisoformat(task.metadata["planned"]) == aware(row(schedule).fired_for)


def test_periods_rates_and_ends_go_by_the_same_clock(queue):
    end = timezone.make_naive(datetime.now(UTC) + timedelta(seconds=150), timezone.get_default_timezone())
    given = {"queue": queue, "action": "act", "period": 60.0, "until": end, "overlap": "allow"}
    given |= {"rate_key": "channel", "rate_limit": 1.0}
    first, second = (Schedule.objects.create(name=name, **given) for name in ("first", "second"))
    drain(Schedule)
    assert 0 < seconds_until(row(first).planned) <= 60
    advance(60, Schedule)
    drain(Schedule)
    # One, or both if a second went by between them.
    assert 1 <= Task.objects.count() <= 2
    assert -60 < seconds_until(Rate.objects.get().free_at) <= 1
    for _ in range(2):
        advance(60, Schedule)
        drain(Schedule)
    assert {row(each).state for each in (first, second)} == {"ended"}
    assert 2 <= Task.objects.count() <= 4


@pytest.mark.parametrize("zone", [UTC, None], ids=["with a zone", "of the site"])
def test_queue_is_paused_until_a_moment(queue, zone):
    queue.publish("act")
    queue.pause(claim=True, until=datetime.now(zone) + timedelta(seconds=60))
    assert Queue.objects.get().claiming_paused
    assert queue.claim(worker="bot-1") == []
    assert 0 < seconds_until(queue.pause_until) <= 60
    queue.pause(claim=True, until=datetime.now(zone) - timedelta(seconds=1))
    assert not Queue.objects.get().claiming_paused
    assert len(queue.claim(worker="bot-1")) == 1


def test_task_of_the_framework_runs_after_a_moment():
    add.using(run_after=datetime.now(UTC) + timedelta(seconds=60)).enqueue(1)
    task = Task.objects.get()
    assert 0 < seconds_until(task.state_next_attempt) <= 60
    assert drain(Task) == 0
    advance(61, Task)
    assert drain(Task) == 1


@pytest.mark.postgresql
def test_hour_that_clocks_show_twice_is_two_hours():
    """On the others a column without a zone has no room for the difference, as with Django's own times."""
    early, late = (datetime(2025, 11, 2, hour, 30, tzinfo=UTC) for hour in (5, 6))
    for moment in (early, late):
        Rate.objects.create(key=str(moment.hour), free_at=stored(moment, "default"), line_until=timezone.now())
    found = {rate.key: aware(rate.free_at) for rate in Rate.objects.all()}
    assert found == {"5": early, "6": late}
