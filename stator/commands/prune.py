"""``stator prune``: delete rows past their retention, maintain partitions, and thin the samples of the queue."""

from argparse import ArgumentParser
from collections.abc import Callable
from functools import partial

from stator.commands.answer import Answer, Options
from stator.commands.arguments import models_of
from stator.conf import load_settings
from stator.db import operations_for, own_tables
from stator.db.interface import new_worker_id
from stator.rows.meta import by_database
from stator.worker.duties import retention_of, upkeeps

HELP = (
    "Delete reports, history, statistics, and rows of ended workers and ended pauses that are past their retention. "
    "Make partitions ahead and drop those past their retention, in tables that PartitionByTime has divided. "
    "Thin the samples of the queue to one per hour after two days. Merge the statistics of past hours. "
    "Workers do all of this at their scheduling passes."
)
AT_ONCE = 1000


def add_arguments(parser: ArgumentParser) -> None:
    """Add nothing beyond the common arguments."""


def run(options: Options) -> Answer:
    """Prune; return how many rows were deleted, partitions changed, samples thinned, and statistics merged."""
    deleted, changed = dict[str, int](), dict[str, int]()
    kept: dict[str, dict[str, int]] = {upkeep.name: {} for upkeep in upkeeps()}
    ages = retention_of(load_settings())
    for alias, models in by_database(models_of([]), options["database"]).items():
        changed[alias] = own_tables.keep_up_all(alias, **ages)
        deleted[alias] = own_tables.prune_all(alias, AT_ONCE, **ages)
        operations = operations_for(models[0], load_settings(), new_worker_id(), alias)
        for upkeep in upkeeps():
            kept[upkeep.name][alias] = _until_done(partial(upkeep.of, operations))
    lines = [f"{count:,} rows deleted from {alias}" for alias, count in deleted.items()]
    lines += [f"{count:,} partitions made or dropped in {alias}" for alias, count in changed.items() if count]
    lines += [
        f"{count:,} {upkeep.said} in {alias}"
        for upkeep in upkeeps()
        for alias, count in kept[upkeep.name].items()
        if count
    ]
    return Answer({"deleted": deleted, "partitions": changed, **kept}, lines)


def _until_done(step: Callable[..., int]) -> int:
    total = 0
    while done := step(AT_ONCE):
        total += done
    return total
