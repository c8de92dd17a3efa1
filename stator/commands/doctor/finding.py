"""One thing that was looked at."""

from dataclasses import asdict, dataclass
from typing import Any

OK, WARN, FAIL = "ok", "warn", "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found in a database: ``ok``, ``warn`` or ``fail``, and the remedy where there is something to do."""

    check: str
    database: str
    level: str
    message: str
    remedy: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The finding as JSON has it."""
        return asdict(self)
