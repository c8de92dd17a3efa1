"""``stator workers``: the worker processes."""

from argparse import ArgumentParser
from typing import Any

from stator.commands.answer import Answer, Options, table
from stator.commands.arguments import models_of
from stator.explain.survey import Workers, WorkerStatus, death
from stator.graph.durations import span
from stator.overview.workers import workers_of
from stator.rows.meta import by_database

HELP = "List the worker processes of the last day."
HEADS = ["worker", "host", "pid", "status", "heartbeat", "holds", "handled", "lost", "models"]


def add_arguments(parser: ArgumentParser) -> None:
    """Add nothing beyond the common arguments."""


def run(options: Options) -> Answer:
    """Return the workers of the chosen databases, the latest first."""
    by_alias = by_database(models_of([]), options["database"])
    found = [worker for alias, models in by_alias.items() for worker in reported(workers_of(alias, models))]
    rows = [
        [
            row["id"], row["host"], row["pid"], death(row["ending"]) if row["status"] == "gone" else row["status"],
            f"{span(row['heartbeat_age'])} ago", row["running"],
            row["handled"], row["lost"], " ".join(row["models"]),
        ]
        for row in found
    ]  # fmt: skip
    return Answer(found, table(HEADS, rows) if rows else ["No worker was active in the last day; start runstator."])


def reported(workers: Workers) -> list[dict[str, Any]]:
    """Return the workers of a database for JSON, the latest first: alive, gone without a stop, or stopped."""
    latest = sorted(workers.processes, key=lambda process: process.worker.started, reverse=True)
    return [_reported(process) for process in latest]


def _reported(process: WorkerStatus) -> dict[str, Any]:
    worker = process.worker
    return {
        "id": worker.pk,
        "host": worker.host,
        "pid": worker.pid,
        "version": worker.version,
        "database": worker.database,
        "models": worker.models,
        "status": process.status,
        "ending": process.ending,
        "started": worker.started.isoformat(),
        "heartbeat_age": process.heard,
        "stopped": worker.stopped.isoformat() if worker.stopped else None,
        "running": len(process.runs),
        "handled": worker.handled,
        "lost": worker.lost,
    }
