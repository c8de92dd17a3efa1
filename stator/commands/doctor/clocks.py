"""Check of this host's clock against the database's."""

import time

from django.db import connections

from stator.capabilities import capabilities_of
from stator.explain.problem import OK, WARNING, Problem
from stator.models import StatorModel

# Workers use only the database's clock, so a difference only confuses people who read logs.
TOLERATED = 5.0


def skew(alias: str, models: list[type[StatorModel]]) -> Problem:
    """Check how far the clocks are apart."""
    connection = connections[alias]
    capabilities = capabilities_of(connection)
    if not capabilities.has_clock_timestamp:
        return Problem("clock", f"not checked on {capabilities.name}", level=OK)
    with connection.cursor() as cursor:
        before = time.time()
        cursor.execute("SELECT extract(epoch FROM clock_timestamp())::float8")
        theirs, after = cursor.fetchone()[0], time.time()
    apart = abs(theirs - (before + after) / 2)
    if apart > TOLERATED + (after - before) / 2:
        message = f"the clock of this host and that of the database are {apart:.1f} s apart"
        return Problem("clock", message, remedy="run a time service such as chrony on both", level=WARNING)
    return Problem("clock", f"{apart:.1f} s apart from the database", level=OK)
