"""The row of this process in the table of workers: inserted at the start, then refreshed, closed at the end."""

import os
import socket
import time
from collections import defaultdict
from collections.abc import Callable

from django.db.models.functions import Now

from stator import __version__
from stator.db.interface import Operations
from stator.db.locks import Locks
from stator.rows.workers import WORKER_BEAT, Worker
from stator.worker.outage import Outages

HOST_LENGTH = 255

# The step in which the row is written.
SHOW = "show"


class Presence:
    """One row in each database of the process. ``figures`` returns how much it runs, has handled and has lost."""

    def __init__(self, worker_id: str, operations: list[Operations], figures: Callable[[], dict[str, int]]) -> None:
        self._id = worker_id
        self._by_alias: dict[str, list[Operations]] = defaultdict(list)
        for part in operations:
            self._by_alias[part.alias].append(part)
        self._locks = Locks(Worker._meta.label_lower)
        self._figures = figures
        self._shown = float("-inf")

    def show(self) -> None:
        """Refresh the heartbeat of the rows unless that was done lately; one UPDATE per database."""
        now = time.monotonic()
        if now - self._shown < WORKER_BEAT or not self._locks.allow(SHOW):
            return
        self._refresh(heartbeat=Now())
        if not self._locks.are_held:
            self._shown = now

    def leave(self) -> None:
        """Record the end of the process."""
        self._refresh(heartbeat=Now(), stopped=Now())

    def _refresh(self, **moments: Now) -> None:
        outages = Outages()
        for alias, group in self._by_alias.items():
            labels = sorted(operations.label for operations in group if not operations.lacking)
            with outages.noted(alias), self._locks.tried(SHOW), group[0].transaction():
                rows = Worker.objects.using(alias)
                if not rows.filter(pk=self._id).update(models=labels, **moments, **self._figures()):
                    # The first time, or the row was pruned while the process was cut off.
                    rows.bulk_create([self._row(alias, labels)], ignore_conflicts=True)
        outages.tell()

    def _row(self, alias: str, labels: list[str]) -> Worker:
        return Worker(
            id=self._id,
            host=socket.gethostname()[:HOST_LENGTH],
            pid=os.getpid(),
            version=__version__,
            models=labels,
            database=alias,
            **self._figures(),
        )
