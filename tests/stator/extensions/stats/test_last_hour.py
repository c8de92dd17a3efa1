"""The last hour by minute, from the samples of workers and from their rows."""

from datetime import timedelta

import pytest
from django.utils import timezone

from stator.extensions.stats.minutes import minutes_of
from stator.models import Depth, Stats
from stator.survey.flow import MINUTES, MinuteSample, alive_in, failing_in, moves_in, waits_in
from stator.survey.workers import workers_of
from tests.stator.making import ago
from tests.stator.overviews import worker

pytestmark = pytest.mark.django_db


ONE, OTHER = "testapp.parcel", "testapp.letter"
AT = timezone.now().replace(hour=10, minute=15, second=20, microsecond=0)


def sample(minutes_ago, moved=0, label=ONE, **columns):
    minute = AT.replace(second=0) - timedelta(minutes=minutes_ago)
    Depth.objects.create(model_label=label, minute=minute, queued=0, moved=moved, **columns)


def minutes():
    return minutes_of("default", [ONE, OTHER], AT)


def test_moves_are_told_by_the_second_from_one_sample_to_the_next():
    sample(3, 100)
    sample(2, 220)
    sample(1, 220, failing=4, oldest=2.5)
    assert minutes()[ONE][-4:] == [None, MinuteSample(None, 0, 0), MinuteSample(2.0, 0, 0), MinuteSample(0.0, 2.5, 4)]


def test_moves_of_minutes_without_a_sample_are_spread_over_them():
    sample(6, 0)
    sample(3, 360)
    assert [one and one.moves for one in minutes()[ONE][-6:]] == [None, 2.0, 2.0, 2.0, None, None]


def test_nothing_is_known_of_the_time_without_workers():
    sample(40, 0)
    sample(20, 6000)
    found = minutes()[ONE]
    assert found[-20] == MinuteSample(None, 0, 0)
    assert found[-39:-20] == [None] * 19


def test_count_that_begins_anew_with_the_hour_loses_no_move():
    # At 09:59 and at 10:00; the 60 moves that followed the first sample are in the statistics of its hour.
    sample(16, 940)
    sample(15, 30)
    Stats.objects.create(model_label=ONE, hour=AT.replace(hour=9, minute=0, second=0), source="a", to="b", handled=1000)
    assert minutes()[ONE][-15] == MinuteSample(1.5, 0, 0)


def test_models_are_added_up_and_the_longest_wait_is_of_all():
    for label, oldest in ((ONE, 3.0), (OTHER, 9.0)):
        sample(2, 0, label)
        sample(1, 60, label, failing=2, oldest=oldest)
    found = minutes().values()
    assert (moves_in(found)[-1], waits_in(found)[-1], failing_in(found)[-1]) == (2.0, 9.0, 4)
    assert (moves_in(found)[0], waits_in(found)[0], failing_in(found)[0]) == (None, None, None)


def test_workers_are_alive_from_their_start_to_their_last_heartbeat():
    worker(id="a" * 12, started=ago(650))
    worker(id="b" * 12, started=ago(1250), heartbeat=ago(350))
    worker(id="c" * 12, started=ago(90000), heartbeat=ago(350), stopped=ago(350))
    alive = alive_in(workers_of("default", []).processes)
    assert len(alive) == MINUTES
    assert (alive[0], alive[-20], alive[-10], alive[-1]) == (1, 2, 3, 1)
