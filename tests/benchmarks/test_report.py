"""Tables of measurements."""

import pytest

from benchmarks.report import Run, Spent, Target, judge, once, verdict

MEASURED = {
    "ours": [Run(90, 0.02, 0.5), Run(120, 0.03, 0.5), Run(400, 0.04, 0.5)],
    "theirs": [Run(100, 0.06, 0.5)],
}


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


@pytest.mark.parametrize(
    ("target", "line"),
    [
        (Target(100), "ours: per second 120, target >= 100: met"),
        (Target(1.3, of="theirs"), "ours: per second by that of theirs 1.2, target >= 1.3: MISSED"),
        (
            Target(0.9, of="theirs", most=True, figure="cost"),
            "ours: time for each by that of theirs 0.833, target <= 0.9: met",
        ),
        (Target(0.025, most=True, figure="own"), "ours: worker CPU 0.03, target <= 0.025: MISSED"),
    ],
)  # fmt: skip
def test_a_target_is_judged_by_the_medians(target: Target, line: str) -> None:
    assert judge(MEASURED, "ours", target) == line


def test_a_run_is_per_second_and_per_thousand() -> None:
    assert once(500, lambda: Spent(seconds=2, own=1, server=0.5)) == Run(rate=250, own=2, server=1)
