"""``stator workers``: the worker processes."""

from argparse import ArgumentParser

from stator.commands.answer import Answer, Options, lines_of, table
from stator.commands.arguments import models_of
from stator.commands.running import reported
from stator.graph.durations import span
from stator.rows.meta import by_database
from stator.rows.workers import Worker
from stator.survey.workers import workers_of

HELP = "List the worker processes of the last day."
HEADS = ["worker", "id", "host", "pid", "status", "heartbeat", "holds", "handled", "lost", "models"]


def add_arguments(parser: ArgumentParser) -> None:
    """Add nothing beyond the common arguments."""


def run(options: Options) -> Answer:
    """Return the workers of the chosen databases, the latest first."""
    by_alias = by_database(models_of([]), options["database"])
    answers = [workers_of(alias, models) for alias, models in by_alias.items()]
    workers = [worker for each in answers for worker in reported(each)]
    unread = {label: problem for each in answers for label, problem in each.unread.items()}
    rows = [
        [
            row["name"], row["id"], row["host"], row["pid"], _status(row),
            f"{span(row['heartbeat_age'])} ago", row["running"],
            row["handled"], row["lost"], " ".join(row["models"]),
        ]
        for row in workers
    ]  # fmt: skip
    none = [] if Worker._meta.label_lower in unread else ["No worker was active in the last day; start runstator."]
    lines = [line for problem in unread.values() for line in lines_of(problem)]
    return Answer(workers, [*(table(HEADS, rows) if rows else none), *lines])


def _status(row: dict[str, object]) -> str:
    return f"{row['status']} ({row['ending']})" if row["ending"] else str(row["status"])
