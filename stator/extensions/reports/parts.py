"""What a worker has of it."""

from typing import Any

from stator.extensions.reports.attempt_log import keep_logs
from stator.worker.parts import Part


def beside(worker: Any) -> list[Part]:
    """Return the part that has the process keep what attempts log."""
    return [Part(start=keep_logs)]
