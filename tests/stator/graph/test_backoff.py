"""Delays stay within their bounds, however often they are drawn; lengths of time in words."""

import pytest

from stator.graph.backoff import Backoff, delay_after
from stator.graph.durations import span


def test_backoff_without_a_base_starts_from_the_interval():
    drawn = [Backoff().delay(1, 100) for _ in range(500)]
    assert min(drawn) >= 10
    assert 90 < max(drawn) <= 100


@pytest.mark.parametrize(("failures", "wait"), [(1, 10), (2, 20), (5, 160), (9, 300)])
def test_backoff_without_jitter_waits_exactly_what_one_computes(failures, wait):
    assert Backoff(base=10, cap=300, jitter=0).delay(failures, 60) == wait


def test_jitter_is_the_part_of_the_wait_that_is_drawn():
    drawn = [Backoff(base=100, jitter=0.2).delay(1, 60) for _ in range(500)]
    assert 80 <= min(drawn) < 85
    assert 95 < max(drawn) <= 100


def test_cap_below_the_base_does_not_shorten_the_first_delay():
    assert 100 <= Backoff(base=1000, cap=10).delay(1, 1) <= 1000


def test_back_off_may_be_a_function_of_the_number_of_failures_that_gives_seconds():
    assert delay_after(lambda failures: failures * 5, 3, 60) == 15.0
    # Less than nothing is now.
    assert delay_after(lambda failures: -5, 3, 60) == 0.0
    for answer in (float("nan"), float("inf"), None, "soon"):
        with pytest.raises((ValueError, TypeError)):
            delay_after(lambda failures, answer=answer: answer, 1, 60)


# Lengths of time in words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "0 s"), (59.9, "59 s"), (60, "1 m"), (61, "1 m 1 s"), (3601, "1 h"), (86399, "23 h 59 m"),
        (90000, "1 d 1 h"),
    ],
)  # fmt: skip
def test_the_two_largest_units_are_named(seconds: float, words: str) -> None:
    assert span(seconds) == words
