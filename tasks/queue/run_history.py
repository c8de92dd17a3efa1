"""Runs as the history of a task's attempts: see ``KeptAttempts`` in ``stator/rows/kept_attempts.py``."""

from collections.abc import Iterable
from typing import Any

from django.db.models import F, QuerySet
from django.db.models.functions import Coalesce

from stator.models import Now, worker_of
from stator.rows.kept_attempts import KeptAttempt, KeptStay, keep_attempts
from tasks.rows.runs import Run
from tasks.rows.tables import run_rows, task_model

# The only state with a handler.
SOURCE = "pending"

# When an attempt ended; the run of a named worker that has lost its lease remains open.
END = Coalesce(F("ended"), F("lease_until"))


def in_history(runs: QuerySet[Run]) -> QuerySet[Any]:
    """Return the runs that the history has; ``at`` is when they ended."""
    return runs.filter(attempt__isnull=False).annotate(at=END)


class RunHistory:
    """The runs of tasks, as the framework reads them."""

    def of_object(self, pk: object, using: str, most: int) -> Iterable[KeptAttempt]:
        """Return the latest runs of a task. Index ``tasks_run_of_worker``."""
        for run in in_history(run_rows(using)).filter(task=pk).order_by("-at", "-pk")[:most]:
            yield KeptAttempt(
                object_pk=str(pk), at=run.at, version=run.version_at_claim + bool(run.to), source=SOURCE,
                to=run.to or "", worker=worker_of(run.token), claimed=run.claimed, duration=run.duration,
                stay=run.stay, attempts=run.attempt or 0, error=run.error or "", fingerprint=run.fingerprint or "",
            )  # fmt: skip

    def latest_moves(self, using: str, seconds: float, most: int) -> Iterable[KeptStay]:
        """Return the moves among the runs that were written last, by the primary key."""
        # The moves are chosen here: among many errors, the database would read all of them to find few moves.
        latest = run_rows(using).order_by("-pk").values_list("ended", "stay", "duration", "attempt", Now())[:most]
        for ended, stay, duration, attempt, now in latest:
            if stay is not None and ended is not None and (now - ended).total_seconds() <= seconds:
                yield KeptStay(ended, SOURCE, stay, duration, attempt or 0)


def connect() -> None:
    """Say that runs are the history of attempts."""
    keep_attempts(task_model(), RunHistory())
