"""Metrics in the text format of Prometheus, version 0.0.4."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# Upper limits of a histogram's buckets in seconds, from a statement to the longest handlers.
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric with its samples; ``kind`` is ``gauge``, ``counter`` or ``histogram``."""

    name: str
    kind: str
    help_text: str
    samples: tuple[tuple[str, Labels, float], ...]

    @classmethod
    def of(cls, name: str, kind: str, help_text: str, values: dict[Labels, float]) -> "Metric":
        """Return a metric with one value for each set of labels."""
        return cls(name, kind, help_text, tuple((name, labels, value) for labels, value in values.items()))


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


def exposed(metrics: Iterable[Metric]) -> str:
    """Return the text, one line for each sample; metrics without samples are left out."""
    lines: list[str] = []
    for metric in metrics:
        if metric.samples:
            help_text = metric.help_text.replace("\\", "\\\\").replace("\n", "\\n")
            lines += [f"# HELP {metric.name} {help_text}", f"# TYPE {metric.name} {metric.kind}"]
            lines += [f"{name}{_labels(labels)} {_number(value)}" for name, labels, value in metric.samples]
    return "".join(f"{line}\n" for line in lines)


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    parts = (f'{name}="{_escaped(value)}"' for name, value in labels)
    return f"{{{','.join(parts)}}}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
