"""Counts and timings of one worker process, for its endpoint. Nothing here reaches a database."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING

from django.utils.module_loading import import_string
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from stator import __version__
from stator.batteries import extensions
from stator.db.interface import Ended
from stator.graph.outcomes import Moved, Released
from stator.seams import Counts, ProcessCounts

# Upper limits of a histogram's buckets in seconds, from a statement to the longest handlers.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)


class Durations:
    """Durations in buckets. One thread adds to it without a lock; other threads may read it."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.sum = 0.0

    def add(self, *seconds: float) -> None:
        """Count durations."""
        for each in seconds:
            self.counts[bisect_left(BUCKETS, each)] += 1
        self.sum += sum(seconds)

    def buckets(self) -> list[tuple[str, float]]:
        """Return how many durations were no longer than the limit of each bucket."""
        limits = [*(f"{limit:g}" for limit in BUCKETS), "+Inf"]
        return list(zip(limits, accumulate(self.counts.copy()), strict=True))


@cache
def counters() -> tuple[Counts | ProcessCounts, ...]:
    """Return what extensions count."""
    return tuple(import_string(path) for extension in extensions() for path in extension.counters)


class Measures:
    """Attempts by model and outcome, run times, the times of claims and records, and what extensions count.

    The loop writes them.
    """

    def __init__(self) -> None:
        self.attempts: Counter[tuple[str, str]] = Counter()
        self.further: list[tuple[Counts, Counter[tuple[str, str]]]] = [
            (counts, Counter()) for counts in counters() if isinstance(counts, Counts)
        ]
        self.run_times: dict[str, Durations] = defaultdict(Durations)
        # Durations of the claiming and of the recording statements.
        self.times: dict[str, Durations] = {"claim": Durations(), "record": Durations()}

    def took(self, what: str, seconds: float) -> None:
        """Count how long a statement took."""
        self.times[what].add(seconds)

    def ended(self, ended: Iterable[Ended]) -> None:
        """Count attempts that have ended, without those that did not take place."""
        times: dict[str, list[float]] = defaultdict(list)
        for claim, outcome in ended:
            if isinstance(outcome, Released):
                continue
            label = claim.operations.label
            how = "failed" if outcome.failure else "moved" if isinstance(outcome, Moved) else "waits"
            self.attempts[label, how] += 1
            for counts, counted in self.further if claim.kept else ():
                for what, number in counts.of(claim).items():
                    counted[label, what] += number
            if claim.started and claim.finished:
                times[label].append(claim.finished - claim.started)
        for label, seconds in times.items():
            self.run_times[label].add(*seconds)


if TYPE_CHECKING:
    from stator.worker.worker import Worker


class WorkerMetrics:
    """A collector of the metrics of a running worker."""

    def __init__(self, worker: "Worker", measures: Measures) -> None:
        self._worker, self._measures = worker, measures

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as they are now."""
        worker, measures, recorder = self._worker, self._measures, self._worker.recorder
        info = GaugeMetricFamily("stator_worker_info", "This worker.", labels=["worker", "version"])
        info.add_metric([worker.id, __version__], 1)
        yield info
        running = len(worker.attempts.running)
        yield GaugeMetricFamily("stator_worker_running", "Attempts that are running now.", running)
        yield _counted("stator_worker_attempts_total", "Ended attempts by outcome.", "outcome", measures.attempts)
        for counts, counted in measures.further:
            yield _counted(counts.name, counts.help, counts.by, counted)
        yield _counted("stator_worker_moves_total", "Moves into each state.", "state", recorder.moved)
        lost, claimed = recorder.lost, worker.dispatcher.claimed
        yield CounterMetricFamily("stator_worker_lost_leases_total", "Outcomes refused after the lease ended.", lost)
        yield CounterMetricFamily("stator_worker_claimed_total", "Claimed objects.", claimed)
        run_times = HistogramMetricFamily("stator_worker_run_seconds", "How long attempts ran.", labels=["model"])
        for label, times in measures.run_times.copy().items():
            run_times.add_metric([label], times.buckets(), times.sum)
        yield run_times
        yield _timed("stator_worker_claim_seconds", "How long each claim took.", measures.times["claim"])
        yield _timed("stator_worker_record_seconds", "How long writing a batch took.", measures.times["record"])
        yield from counted_in_process()


def counted_in_process() -> Iterator[Metric]:
    """Yield what extensions have counted in this process, of a worker or of the site."""
    for counts in counters():
        if isinstance(counts, ProcessCounts):
            yield _counted(counts.name, counts.help, counts.by, counts.counted)


def _counted(name: str, help_text: str, by: str, counts: Counter[tuple[str, str]]) -> Metric:
    family = CounterMetricFamily(name, help_text, labels=["model", by])
    for (label, value), count in counts.copy().items():
        family.add_metric([str(label), str(value)], count)
    return family


def _timed(name: str, help_text: str, times: Durations) -> Metric:
    return HistogramMetricFamily(name, help_text, times.buckets(), times.sum)
