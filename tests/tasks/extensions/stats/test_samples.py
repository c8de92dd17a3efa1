"""Samples of queues: what waited by minute, and what ended by hour."""

from datetime import timedelta

import pytest
from django.utils import timezone

from stator.models import Depth, Stats
from tasks.extensions.stats import samples
from tasks.extensions.stats.samples import sample
from tasks.rows.queues import label_of
from tests.stator.making import change
from tests.tasks.making import make_queue, make_task

pytestmark = pytest.mark.django_db

MINUTE = timezone.now().replace(hour=12, minute=30, second=0, microsecond=0)


@pytest.fixture
def clock(monkeypatch):
    """Sets the time of the samples."""
    moments = [MINUTE]
    monkeypatch.setattr(samples.timezone, "now", lambda: moments[-1])
    return moments.append


def fill(queue):
    """Two that wait, the first for ten minutes; in this hour two that ended and a dead letter, in the last one more."""
    make_task(queue, key="waits")
    change(make_task(queue, key="long", priority=-1), state_changed=MINUTE - timedelta(minutes=10))
    for key, state, minutes in (
        ("a", "completed", 1),
        ("b", "completed", 30),
        ("c", "errored", 2),
        ("d", "completed", 31),
    ):
        change(make_task(queue, state, key=key, priority=-2), state_changed=MINUTE - timedelta(minutes=minutes))


def ended():
    rows = Stats.objects.exclude(source__gt="").values_list("model_label", "hour", "handled", "failed")
    return {(label, hour.hour): (handled, failed) for label, hour, handled, failed in rows}


def test_queues_are_sampled_once_a_minute_by_whoever_comes_first(clock, django_assert_max_num_queries):
    queue, other = make_queue("busy"), make_queue("idle")
    fill(queue)
    assert sample("default")
    with django_assert_max_num_queries(1):
        assert not sample("default")
    [depth] = Depth.objects.filter(model_label=label_of("busy"))
    assert (depth.minute, depth.queued) == (MINUTE, 2)
    assert depth.oldest > 0
    assert not Depth.objects.filter(model_label=label_of(other.name)).exists()
    assert ended() == {(label_of("busy"), MINUTE.hour): (3, 1)}


def test_what_ended_is_counted_anew_each_time_and_the_last_hour_once_it_is_over(clock):
    queue = make_queue("busy")
    fill(queue)
    sample("default")
    change(make_task(queue, "completed", key="late", priority=-2), state_changed=MINUTE)
    clock(MINUTE + timedelta(minutes=1))
    sample("default")
    assert ended() == {(label_of("busy"), MINUTE.hour): (4, 1)}
    change(
        make_task(queue, "completed", key="last", priority=-2), state_changed=MINUTE + timedelta(minutes=29, seconds=59)
    )
    change(make_task(queue, "errored", key="next", priority=-2), state_changed=MINUTE + timedelta(minutes=30))
    clock(MINUTE + timedelta(minutes=30))
    sample("default")
    assert ended() == {(label_of("busy"), MINUTE.hour): (5, 1), (label_of("busy"), MINUTE.hour + 1): (1, 1)}
