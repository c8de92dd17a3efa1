"""A reason, and phrases that reasons share."""

from dataclasses import asdict, dataclass, field
from typing import Any

from stator.explain.facts import Facts
from stator.graph.durations import span


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason: a ``code`` that does not change, a sentence, and the numbers in it; durations are in seconds.

    ``remedy``: what to do about it; empty if nothing has to be done.
    """

    code: str
    sentence: str
    numbers: dict[str, Any] = field(default_factory=dict)
    remedy: str = ""

    def __str__(self) -> str:
        return self.sentence

    def as_dict(self) -> dict[str, Any]:
        """Return the reason as a dictionary for JSON."""
        return asdict(self)


def words_of(facts: Facts) -> str:
    """Return the text of an object's latest report."""
    report = facts.report
    return f"{report.error}: {report.message}" if report else ""


def report_of(facts: Facts) -> dict[str, Any]:
    """Return the latest report as a dictionary."""
    report = facts.report
    if report is None:
        return {}
    ago = (facts.now - report.at).total_seconds()
    return {"error": report.error, "message": report.message, "times": report.times, "said": ago}


def coming(left: float) -> str:
    """Return a phrase for when something happens in ``left`` seconds."""
    return f"in {span(left)}" if left > 0 else "now"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
