"""Counts and timings of a worker process."""

import pytest

from stator.worker.measures import BUCKETS, Durations


def test_buckets_count_all_that_took_no_longer():
    durations = Durations()
    for seconds in (0.001, 0.002, 0.3, 4000):
        durations.add(seconds)
    buckets = dict(durations.buckets())
    assert buckets["0.001"] == 1
    assert buckets["0.0025"] == 2
    assert buckets["0.25"] == 2
    assert buckets["0.5"] == 3
    assert buckets[f"{BUCKETS[-1]:g}"] == 3
    assert buckets["+Inf"] == 4
    assert durations.sum == pytest.approx(4000.303)
