"""How worker processes ended: a killed process cannot report its own end, so the process that replaces it does."""

import signal
from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import BooleanField, ExpressionWrapper, F, Q

from stator.rows.workers import MAX_WORKERS, Worker

# How processes ended, by host and process.
Exits = dict[tuple[str, int], str]


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """The process of a worker. ``ending``: how it ended as a phrase, empty if no other process has published that."""

    pid: int
    host: str
    ending: str = ""

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}{f', {self.ending}' if self.ending else ''}"


def exit_reason(exit_code: int) -> str:
    """Return how a process ended as a phrase; shells and containers show a signal as 128 and its number."""
    if exit_code >= 0:
        return f"exit {exit_code}"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    return f"exit {128 - exit_code}, {name}{': out of memory?' if -exit_code == signal.SIGKILL else ''}"


def exits_in(using: str, published: Iterable[tuple[str, object]]) -> Exits:
    """Return how processes ended, from each worker's host and its published text about the process before it."""
    return {(host, it["pid"]): exit_reason(it["exit_code"]) for host, it in published if isinstance(it, dict)}


def processes_of(using: str | None, wanted: Q) -> dict[str, WorkerProcess]:
    """Return the processes of the workers that match, by their id; one statement.

    Rows of ended workers are deleted after a day, and then their processes are not known any more.
    """
    workers = Worker.objects.using(using).filter(wanted | Q(published__has_key="replaced"))
    marked = workers.annotate(wanted=ExpressionWrapper(wanted, BooleanField()), replaced=F("published__replaced"))
    rows = list(marked.order_by("-started").values_list("pk", "pid", "host", "replaced", "wanted")[:MAX_WORKERS])
    ends = exits_in("", ((host, it) for _, _, host, it, _ in rows))
    return {pk: WorkerProcess(pid, host, ends.get((host, pid), "")) for pk, pid, host, _, own in rows if own}
