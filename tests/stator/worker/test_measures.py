"""Counts and timings of a worker process."""

import pytest

from stator.worker.measures import BUCKETS, Histogram


def test_buckets_count_all_that_took_no_longer():
    histogram = Histogram()
    for seconds in (0.001, 0.002, 0.3, 4000):
        histogram.add(seconds)
    samples = {(name, dict(labels).get("le")): value for name, labels, value in histogram.samples("t")}
    assert samples["t_bucket", "0.001"] == 1
    assert samples["t_bucket", "0.0025"] == 2
    assert samples["t_bucket", "0.25"] == 2
    assert samples["t_bucket", "0.5"] == 3
    assert samples["t_bucket", f"{BUCKETS[-1]:g}"] == 3
    assert samples["t_bucket", "+Inf"] == samples["t_count", None] == 4
    assert samples["t_sum", None] == pytest.approx(4000.303)
