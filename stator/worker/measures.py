"""Counts and timings of one worker process, for its endpoint. Nothing here reaches a database."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from stator import __version__
from stator.db.interface import Claim
from stator.exposition import Labels, Metric
from stator.graph.outcomes import Moved, Outcome, Released

# Upper limits of a histogram's buckets in seconds, from a statement to the longest handlers.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)


class Histogram:
    """Durations in buckets. One thread adds to it; others may read."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.sum += seconds

    def samples(self, name: str, labels: Labels = ()) -> Iterator[tuple[str, Labels, float]]:
        """Yield the cumulative buckets, the count and the sum."""
        total = 0
        for end, count in zip((*BUCKETS, None), self.counts.copy(), strict=True):
            total += count
            yield f"{name}_bucket", (*labels, ("le", "+Inf" if end is None else f"{end:g}")), total
        yield f"{name}_count", labels, total
        yield f"{name}_sum", labels, self.sum


class Measures:
    """Attempts by model and outcome, their run times, and the times of claims and records. The loop writes them."""

    def __init__(self) -> None:
        self.attempts: Counter[tuple[str, str]] = Counter()
        self.run_times: dict[str, Histogram] = defaultdict(Histogram)
        # Durations of the statements that claim and of those that record.
        self.times = {"claim": Histogram(), "record": Histogram()}
        # Steps of the worker that did not reach the database at their latest try.
        self.unreachable: set[Callable[[], object]] = set()

    def note(self, claim: Claim, outcome: Outcome) -> None:
        """Count an attempt that has ended, unless it did not take place."""
        if isinstance(outcome, Released):
            return
        label = claim.operations.label
        how = "failed" if outcome.failure else "moved" if isinstance(outcome, Moved) else "waits"
        self.attempts[label, how] += 1
        if (seconds := claim.duration) is not None:
            self.run_times[label].add(seconds)


def metrics_of(worker: Any) -> Iterator[Metric]:
    """Yield the metrics of a running worker."""
    measures, recorder = worker.measures, worker.recorder
    labelled = {"worker": worker.id, "version": __version__}
    yield Metric.of("stator_worker_info", "gauge", "This worker.", {tuple(labelled.items()): 1})
    yield Metric.of(
        "stator_worker_running", "gauge", "Attempts that are running now.", {(): len(worker.attempts.running)}
    )
    attempts = _counted(measures.attempts, "outcome")
    yield Metric.of("stator_worker_attempts_total", "counter", "Ended attempts by outcome.", attempts)
    moves = _counted(recorder.moved, "state")
    yield Metric.of("stator_worker_moves_total", "counter", "Moves into each state.", moves)
    lost, claimed = recorder.lost, worker.dispatcher.claimed
    yield Metric.of("stator_worker_lost_leases_total", "counter", "Outcomes refused after the lease ended.", {(): lost})
    yield Metric.of("stator_worker_claimed_total", "counter", "Claimed objects.", {(): claimed})
    yield _histogram("stator_worker_run_seconds", "How long attempts ran.", _by_model(measures.run_times.copy()))
    yield _histogram("stator_worker_claim_seconds", "How long each claim took.", {(): measures.times["claim"]})
    yield _histogram("stator_worker_record_seconds", "How long writing a batch took.", {(): measures.times["record"]})


def _by_model(times: dict[str, Histogram]) -> dict[Labels, Histogram]:
    return {(("model", label),): histogram for label, histogram in times.items()}


def _counted(counts: Counter[tuple[str, str]], name: str) -> dict[Labels, float]:
    """Return counts by model and one other label."""
    return {(("model", str(label)), (name, str(value))): count for (label, value), count in counts.copy().items()}


def _histogram(name: str, help_text: str, parts: dict[Labels, Histogram]) -> Metric:
    samples = [sample for labels, histogram in parts.items() for sample in histogram.samples(name, labels)]
    return Metric(name, "histogram", help_text, tuple(samples))
