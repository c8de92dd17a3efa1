"""``stator workers``: the worker processes."""

from argparse import ArgumentParser
from typing import Any, TypedDict

from django.db.models import F

from stator.commands.answer import Answer, table
from stator.commands.arguments import Options, database_of, models_of
from stator.graph.durations import seconds_of, span
from stator.models import StatorModel
from stator.overview.crew import death, holding
from stator.rows.meta import by_database
from stator.rows.process_exits import exits_in
from stator.rows.workers import MOST_WORKERS, Worker

HELP = "List the worker processes of the last day."
HEADS = ["worker", "host", "pid", "status", "heartbeat", "holds", "handled", "lost", "models"]


class Reported(TypedDict):
    """A worker for JSON; ``heartbeat_age`` in seconds. ``running``: the objects that it holds now, dead or alive.

    ``ending``: how its process ended, if the one that replaced it has published that, else empty.
    """

    id: str
    host: str
    pid: int
    version: str
    database: str
    models: list[str]
    status: str
    ending: str
    started: str
    heartbeat_age: float
    stopped: str | None
    running: int
    handled: int
    lost: int


def add_arguments(parser: ArgumentParser) -> None:
    """Add nothing beyond the common arguments."""


def run(options: Options) -> Answer:
    """Return the workers of the chosen databases, the latest first."""
    models = models_of([])
    found = [
        row
        for alias in by_database(models, options["database"])
        for row in workers_in(alias, [model for model in models if database_of(options, model) == alias])
    ]
    rows = [
        [
            row["id"], row["host"], row["pid"], death(row["ending"]) if row["status"] == "gone" else row["status"],
            f"{span(row['heartbeat_age'])} ago", row["running"],
            row["handled"], row["lost"], " ".join(row["models"]),
        ]
        for row in found
    ]  # fmt: skip
    return Answer(found, table(HEADS, rows) if rows else ["No worker was active in the last day; start runstator."])


def workers_in(alias: str, models: list[type[StatorModel]]) -> list[Reported]:
    """Return the workers in a database: alive, gone without a stop, or stopped, each with what it holds."""
    rows: Any = Worker.objects.using(alias).with_status().annotate(replaced=F("published__replaced"))
    found = list(rows.defer("published").order_by("-started", "pk")[:MOST_WORKERS])
    ends = exits_in((worker.host, worker.replaced) for worker in found)
    holds = holding(alias, models)
    return [_described(worker, holds[worker.pk], ends.get((worker.host, worker.pid), "")) for worker in found]


def _described(worker: Any, holds: int, ending: str) -> Reported:
    return {
        "id": worker.pk,
        "host": worker.host,
        "pid": worker.pid,
        "version": worker.version,
        "database": worker.database,
        "models": worker.models,
        "status": worker.status,
        "ending": ending,
        "started": worker.started.isoformat(),
        "heartbeat_age": seconds_of(worker.now - worker.heartbeat),
        "stopped": worker.stopped.isoformat() if worker.stopped else None,
        "running": holds,
        "handled": worker.handled,
        "lost": worker.lost,
    }
