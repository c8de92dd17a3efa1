"""Tables of measurements."""

import pytest

from benchmarks.report import verdict


@pytest.mark.parametrize(
    ("value", "bound", "most", "end"),
    [
        (2.0, 2.0, False, "2, target >= 2: met"),
        (1.999, 2.0, False, "2, target >= 2: MISSED"),
        (2.0, 2.0, True, "2, target <= 2: met"),
        (30_000.4, 29_999, True, "30,000, target <= 29,999: MISSED"),
    ],
)
def test_a_verdict_compares_the_figure_itself(value: float, bound: float, most: bool, end: str) -> None:
    assert verdict("speed", value, bound, most=most) == f"speed {end}"
