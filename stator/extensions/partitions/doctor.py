"""The check of ``stator doctor`` for tables with partitions by time."""

from django.db import connections
from django.db.models import Model

from stator.capabilities import capabilities_of
from stator.extensions.partitions.tables import partitioned
from stator.extensions.partitions.upkeep import rest_of
from stator.rows.problem import OK, WARNING, Problem


def partitions(alias: str, models: list[type[Model]]) -> list[Problem]:
    """Check that tables divided by ``PartitionByTime`` have partitions for the time to come, and take all rows."""
    if not capabilities_of(connections[alias]).has_partitions:
        return []
    problems = []
    for table in partitioned(alias):
        if missing := len(table.missing()):
            remedy = "run a worker or manage.py stator prune" + (", as the owner of the table" * (not table.owned))
            message = f"{missing} partitions of {table.name} are missing, so their rows go to its default partition"
            problems.append(Problem("partitions", message, remedy=remedy, level=WARNING))
        elif table.period is None:
            message = f"the newest partition of {table.name} is no day, week or month, so none is made after it"
            problems.append(Problem("partitions", message, remedy="make partitions yourself", level=WARNING))
        if table.owned and (rest := rest_of(connections[alias], table)):
            # Not bad: they are found as any others.
            message = f"{rest.name} has rows, until all of them are past their retention"
            problems.append(Problem("partitions", message, level=OK))
    return problems or [Problem("partitions", "as they should be, or none", level=OK)]
