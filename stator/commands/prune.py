"""``stator prune``: delete what is old enough, and thin the samples of the queue."""

from argparse import ArgumentParser
from typing import Any

from stator.commands.answer import Answer
from stator.commands.arguments import models_of
from stator.commands.figures import databases_of
from stator.conf import load_settings
from stator.db import Operations, chores, operations_for
from stator.db.claim import new_worker_id

HELP = (
    "Delete reports, statistics, and rows of gone workers and ended pauses that are old enough, and leave one sample "
    "of the queue for each hour older than two days; workers do as well."
)
AT_ONCE = 1000


def add_arguments(parser: ArgumentParser) -> None:
    """Only the common ones."""


def run(options: dict[str, Any]) -> Answer:
    """How many rows were deleted, and how many samples were thinned."""
    deleted, thinned = dict[str, int](), dict[str, int]()
    models = models_of([])
    for alias in databases_of(models, options):
        deleted[alias] = _prune(alias)
        thinned[alias] = _thin(operations_for(models[0], load_settings(), new_worker_id(), alias))
    lines = [f"{count:,} rows deleted from {alias}" for alias, count in deleted.items()]
    lines += [f"{count:,} samples of the queue thinned in {alias}" for alias, count in thinned.items() if count]
    return Answer({"deleted": deleted, "thinned": thinned}, lines)


def _thin(operations: Operations) -> int:
    total = 0
    while thinned := chores.thin(operations, AT_ONCE):
        total += thinned
    return total


def _prune(alias: str) -> int:
    settings, total = load_settings(), 0
    ages = {"errors": settings.ERROR_RETENTION, "stats": settings.STATS_RETENTION}
    while deleted := chores.prune(alias, AT_ONCE, **ages):
        total += deleted
    return total
