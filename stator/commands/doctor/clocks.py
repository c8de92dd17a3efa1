"""Check of this host's clock against the database's, and of the clocks of a cluster's nodes."""

import time

from django.db import connections

from stator.capabilities import capabilities_of
from stator.commands.doctor.servers import ask
from stator.explain.problem import OK, WARNING, Problem
from stator.models import StatorModel

# Workers use only the database's clock, so a difference only confuses people who read logs.
TOLERATED = 5.0

# Nodes of Citus stamp a lease by one clock and end it by another. An object of a dead worker is attempted again within
# its lease, the reap interval and 1 s.
TOLERATED_BETWEEN_NODES = 1.0

CLOCK = "SELECT extract(epoch FROM clock_timestamp())::float8 AS now"


def skew(alias: str, models: list[type[StatorModel]]) -> list[Problem]:
    """Check how far the clocks are apart."""
    capabilities = capabilities_of(connections[alias])
    if not capabilities.has_clock_timestamp:
        return [Problem("clock", f"not checked on {capabilities.name}", level=OK)]
    before = time.time()
    found = {where: now for where, [(now,)] in ask(alias, CLOCK)}
    after = time.time()
    return [*(_from_here(*each, before, after) for each in found.items()), *_between(found, after - before)]


def _from_here(where: str, theirs: float, before: float, after: float) -> Problem:
    apart = abs(theirs - (before + after) / 2)
    if apart > TOLERATED + (after - before) / 2:
        message = f"{where}the clock of this host and that of the database are {apart:.1f} s apart"
        return Problem("clock", message, remedy="run a time service such as chrony on both", level=WARNING)
    return Problem("clock", f"{where}{apart:.1f} s apart from this host", level=OK)


def _between(found: dict[str, float], asked: float) -> list[Problem]:
    """Return the problem of nodes whose clocks differ by more than the time in which they were asked explains."""
    apart = max(found.values()) - min(found.values())
    if apart <= TOLERATED_BETWEEN_NODES + asked:
        return []
    message = f"the clocks of the nodes are {apart:.1f} s apart, so leases end too early or too late"
    remedy = "run a time service such as chrony on all nodes, or connect each worker to the node of its schema"
    return [Problem("clock", message, remedy=remedy, level=WARNING)]
