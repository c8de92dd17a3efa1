"""Metrics in the text format of Prometheus, version 0.0.4."""

from collections.abc import Iterable
from dataclasses import dataclass

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

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


def exposed(metrics: Iterable[Metric]) -> str:
    """Return the metrics as text, one line for each sample; metrics without samples are left out."""
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
