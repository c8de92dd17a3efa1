"""Rates of actions as text, and keys that fit their column."""

import pytest

from tasks.extensions.throttles.frequency import Frequency, frequency, key_text


@pytest.mark.parametrize(
    ("text", "expected"), [("10/s", (10, 1)), ("3/10s", (3, 10)), ("100/m", (100, 60)), ("1/d", (1, 86400))]
)
def test_rate_is_a_number_and_a_time(text: str, expected: tuple[int, int]) -> None:
    assert frequency(text) == Frequency(*expected)


def test_keys_fit_their_column_and_stay_different() -> None:
    assert key_text("a", 1) == "a:1"
    assert len({key_text("x" * 500 + end) for end in "ab"}) == 2
    assert all(len(key_text("x" * 500 + end)) <= 200 for end in "ab")
