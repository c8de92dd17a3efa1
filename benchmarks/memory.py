"""Whether a worker's memory grows with the number of objects it has moved.

``python -m benchmarks.memory [--rows 1000000]``
"""

import statistics
import threading

import psutil

from benchmarks.harness import arguments, database, make_tables, print_table
from benchmarks.report import print_targets, verdict
from benchmarks.throughput import worker

# The share of rows that is ignored: at first caches fill and the interpreter's arenas grow.
WARM_UP = 0.2
MEGABYTE = 1024 * 1024


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__, quick={"rows": 5000}, rows=1_000_000)
    with database():
        from benchmarks.models import CountedItem

        make_tables(CountedItem)
        samples, seconds = drained(options.rows)
        slope = growth([one for one in samples if one[0] >= WARM_UP * options.rows])
        marks = [min(samples, key=lambda one: abs(one[0] - share * options.rows)) for share in (0, 0.2, 0.6, 1)]
        head = ["rows/s", "resident MB at the start", "after 20 %", "after 60 %", "at the end", "MB per 100,000 rows"]
        sizes = [f"{size:.1f}" for _, size in marks]
        line = [f"{options.rows / seconds:,.0f}", *sizes, "-" if slope is None else f"{slope:.2f}"]
        print_table(f"Memory of a worker over a drain of {options.rows:,} rows", head, [line])
        if slope is None:
            print("  the drain was too short to tell; use more --rows")
        else:
            print_targets([verdict("MB per 100,000 rows", slope, 1, most=True)])


def growth(samples: list[tuple[int, float]]) -> float | None:
    """Return the growth in megabytes per 100,000 rows, by least squares; None if there are too few samples."""
    if len({moved for moved, _ in samples}) < 3:
        return None
    moved, sizes = zip(*samples, strict=True)
    return 100_000 * statistics.linear_regression(moved, sizes).slope


def drained(rows: int) -> tuple[list[tuple[int, float]], float]:
    """Return samples of handled rows and resident megabytes, twenty per second; and the seconds in all."""
    from benchmarks.models import CountedItem

    samples: list[tuple[int, float]] = []
    stop = threading.Event()
    thread = threading.Thread(target=_sample, args=[samples, stop])
    thread.start()
    try:
        spent = worker(CountedItem, rows, 500)
    finally:
        stop.set()
        thread.join()
    return samples, spent.seconds


def _sample(samples: list[tuple[int, float]], stop: threading.Event) -> None:
    from benchmarks.models import CountedGraph

    process = psutil.Process()
    before = CountedGraph.handled
    ended = False
    # One more sample after the end, so that the last row is included.
    while not ended:
        ended = stop.wait(0.05)
        samples.append((CountedGraph.handled - before, process.memory_info().rss / MEGABYTE))


if __name__ == "__main__":
    main()
