"""Measuring of cases in turns, and a table of the results with their targets."""

import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import own_cpu, print_table, server_cpu, spread

FIGURES = {"rate": 0, "own": 3, "server": 3}
# The variable with the path of a file for the figures of a run, which benchmarks.beside reads.
FIGURES_FILE = "BENCHMARK_FIGURES"
WORDS = {"rate": "per second", "own": "worker CPU", "server": "database CPU", "cost": "time for each"}


@dataclass(slots=True)
class Spent:
    """Elapsed seconds, and CPU seconds of the worker and of the server, of a block."""

    seconds: float = 0.0
    own: float = 0.0
    server: float = 0.0


@dataclass(frozen=True, slots=True)
class Run:
    """One measurement of a case: how many per second, and CPU seconds per 1,000."""

    rate: float
    own: float
    server: float

    @property
    def cost(self) -> float:
        """Return the seconds for each."""
        return 1 / self.rate


@dataclass(frozen=True, slots=True)
class Target:
    """A target for the median of a case.

    ``of``: divide by this case of the same run; empty to take the number itself. ``figure``: an attribute of ``Run``.
    """

    bound: float
    of: str = ""
    most: bool = False
    figure: str = "rate"


@contextmanager
def watch() -> Iterator[Spent]:
    """Measure a block; read the result afterwards."""
    spent = Spent()
    server, own, started = server_cpu(), own_cpu(), time.perf_counter()
    yield spent
    spent.seconds = time.perf_counter() - started
    spent.own, spent.server = own_cpu() - own, server_cpu() - server


def measure(cases: dict[str, tuple[int, Callable[[], Spent]]], repeat: int) -> dict[str, list[Run]]:
    """Run each case ``repeat`` times, in turns, so that a slow minute slows all cases. A case gives its count."""
    measured: dict[str, list[Run]] = {name: [] for name in cases}
    for _ in range(repeat):
        for name, (count, case) in cases.items():
            measured[name].append(once(count, case))
    return measured


def once(count: int, case: Callable[[], Spent]) -> Run:
    """Run a case with ``count`` operations."""
    spent = case()
    return Run(count / spent.seconds, 1000 * spent.own / count, 1000 * spent.server / count)


def show(title: str, unit: str, measured: dict[str, list[Run]], targets: Mapping[str, tuple[Target, ...]]) -> None:
    """Print a table of medians with their ranges, and below it each target with the result."""
    lines = [
        [name, *(_cell([getattr(run, figure) for run in runs], digits) for figure, digits in FIGURES.items())]
        for name, runs in measured.items()
    ]
    for name, runs in measured.items():
        for figure in FIGURES:
            note(f"{name}: {WORDS[figure]}", _median(runs, figure), less=figure != "rate")
    head = ["case", f"{unit}/s: median (least-most)", "worker CPU s per 1,000", "database CPU s per 1,000"]
    print_table(title, head, lines)
    print_targets([
        judge(measured, name, target)
        for name, wanted in targets.items() if name in measured
        for target in wanted if not target.of or target.of in measured
    ])  # fmt: skip


def note(name: str, value: float, *, less: bool) -> None:
    """Add a figure to the file for them, if there is one; ``less``: less is better."""
    if path := os.environ.get(FIGURES_FILE):
        with Path(path).open("a") as file:
            file.write(json.dumps({"name": name, "value": value, "less": less}) + "\n")


def judge(measured: dict[str, list[Run]], name: str, target: Target) -> str:
    """Return a line with the case, the figure or ratio, and whether it meets the target."""
    value = _median(measured[name], target.figure)
    if not target.of:
        return verdict(f"{name}: {WORDS[target.figure]}", value, target.bound, most=target.most)
    ratio = value / _median(measured[target.of], target.figure)
    return verdict(f"{name}: {WORDS[target.figure]} by that of {target.of}", ratio, target.bound, most=target.most)


def verdict(what: str, value: float, bound: float, most: bool = False) -> str:
    """Return, for example, ``what 1.20, target <= 1.15: MISSED``, and note the figure."""
    note(what, value, less=most)
    reached = value <= bound if most else value >= bound
    return (
        f"{what} {_number(value)}, target {'<=' if most else '>='} {_number(bound)}: {'met' if reached else 'MISSED'}"
    )


def print_targets(lines: list[str]) -> None:
    """Print the results for the targets, below the table."""
    for line in lines:
        print(f"  {line}")


def _cell(values: list[float], digits: int) -> str:
    # If CPU time cannot be read, all values are 0.
    return spread(values, digits) if any(values) else "-"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _median(runs: list[Run], figure: str) -> float:
    return statistics.median(getattr(run, figure) for run in runs)
