"""The result of one check."""

from dataclasses import asdict, dataclass

OK, WARN, FAIL = "ok", "warn", "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check in a database: ``ok``, ``warn`` or ``fail``, and the remedy if something has to be done."""

    check: str
    database: str
    level: str
    message: str
    remedy: str = ""

    def as_dict(self) -> dict[str, object]:
        """Return the finding as a dictionary for JSON."""
        return asdict(self)
