"""``stator prune``: delete what is old enough."""

from argparse import ArgumentParser
from typing import Any

from stator.commands.answer import Answer
from stator.commands.arguments import models_of
from stator.commands.figures import databases_of
from stator.conf import load_settings
from stator.db import chores

HELP = "Delete reports, statistics, and rows of gone workers and ended pauses that are old enough; workers do as well."
AT_ONCE = 1000


def add_arguments(parser: ArgumentParser) -> None:
    """Only the common ones."""


def run(options: dict[str, Any]) -> Answer:
    """How many rows were deleted."""
    deleted = {alias: _prune(alias) for alias in databases_of(models_of([]), options)}
    return Answer({"deleted": deleted}, [f"{count:,} rows deleted from {alias}" for alias, count in deleted.items()])


def _prune(alias: str) -> int:
    settings, total = load_settings(), 0
    ages = {"errors": settings.ERROR_RETENTION, "stats": settings.STATS_RETENTION}
    while deleted := chores.prune(alias, AT_ONCE, **ages):
        total += deleted
    return total
