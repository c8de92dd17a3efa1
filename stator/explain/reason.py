"""A reason, and the words that reasons share."""

from dataclasses import asdict, dataclass, field
from typing import Any

from stator.durations import span
from stator.explain.facts import Facts


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason: a ``code`` that does not change, a sentence, and the numbers in it; lengths of time are seconds.

    ``remedy``: what to do about it; empty when there is nothing to be done.
    """

    code: str
    sentence: str
    numbers: dict[str, Any] = field(default_factory=dict)
    remedy: str = ""

    def __str__(self) -> str:
        return self.sentence

    def as_dict(self) -> dict[str, Any]:
        """The reason as JSON has it."""
        return asdict(self)


def words_of(facts: Facts) -> str:
    """What the latest report of an object says."""
    report = facts.report
    return f"{report.error}: {report.message}" if report else ""


def report_of(facts: Facts) -> dict[str, Any]:
    """The latest report in numbers."""
    report = facts.report
    if report is None:
        return {}
    ago = (facts.now - report.at).total_seconds()
    return {"error": report.error, "message": report.message, "times": report.times, "said": ago}


def coming(left: float) -> str:
    """When something happens that is so many seconds off."""
    return f"in {span(left)}" if left > 0 else "now"


def counted(number: int, noun: str) -> str:
    """A number of things."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
