"""Lengths of time in words."""

import pytest

from stator.graph.durations import span


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "0 s"), (0, "0 s"), (0.9, "0 s"), (59.9, "59 s"), (60, "1 m"), (61, "1 m 1 s"), (3600, "1 h"),
        (3601, "1 h"), (7260, "2 h 1 m"), (86399, "23 h 59 m"), (90000, "1 d 1 h"), (86400 * 400, "400 d"),
    ],
)  # fmt: skip
def test_the_two_largest_units_are_named(seconds: float, words: str) -> None:
    assert span(seconds) == words
