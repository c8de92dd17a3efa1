"""What a worker has of it."""

from stator.extensions.reports.attempt_log import keep_logs
from stator.worker.parts import WorkerPart


def beside(worker: object) -> list[WorkerPart]:
    """Return the part that has the process keep what attempts log."""
    return [WorkerPart(start=keep_logs)]
