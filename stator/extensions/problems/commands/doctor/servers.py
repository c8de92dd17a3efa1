"""The servers of a database: one, or all nodes of a cluster of Citus; and their clocks."""

import json
import time
from collections.abc import Mapping
from typing import Any

from django.db import OperationalError, connections

from stator.capabilities import capabilities_of
from stator.db.values import Row
from stator.models import StatorModel
from stator.rows.problem import OK, WARNING, Problem
from stator.statements import fetch_all

# Citus runs a text on each node, and passes one value back.
ON_NODES = """
SELECT nodename || ':' || nodeport, success, result
FROM run_command_on_all_nodes(%s) found JOIN pg_dist_node USING (nodeid) ORDER BY nodeid
"""
AS_JSON = "SELECT coalesce(json_agg(found), '[]') FROM ({}) found"

# The tables of a distributed schema have other names on their node.
SHARDS = """
SELECT relname || '_' || shardid FROM pg_dist_shard JOIN pg_class ON pg_class.oid = logicalrelid
WHERE relname = ANY(%s)
"""


def ask(alias: str, statement: str, params: Mapping[str, object] | None = None) -> list[tuple[str, list[Row]]]:
    """Return the rows of a statement on each server, after what messages call it: "" if there is only one.

    The statement names all of its columns. Raises ``OperationalError`` if a node does not answer.
    """
    connection: Any = connections[alias]
    if not capabilities_of(connection).has_nodes:
        return [("", fetch_all(connection, statement, params))]
    answers = fetch_all(connection, ON_NODES, [AS_JSON.format(connection.ops.compose_sql(statement, params))])
    for name, is_answer, result in answers:
        if not is_answer:
            raise OperationalError(f"node {name}: {result}")
    return [(f"node {name}: ", [tuple(row.values()) for row in json.loads(result)]) for name, _, result in answers]


def tables_on(alias: str, tables: list[str]) -> list[str]:
    """Return the names that tables have on the servers."""
    connection = connections[alias]
    if not capabilities_of(connection).has_nodes:
        return tables
    return [*tables, *(name for (name,) in fetch_all(connection, SHARDS, [tables]))]


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
    times = {where: now for where, [(now,)] in ask(alias, CLOCK)}
    after = time.time()
    return [*(_from_here(*each, before, after) for each in times.items()), *_between(times, after - before)]


def _from_here(where: str, theirs: float, before: float, after: float) -> Problem:
    apart = abs(theirs - (before + after) / 2)
    if apart > TOLERATED + (after - before) / 2:
        message = f"{where}the clock of this host and that of the database are {apart:.1f} s apart"
        return Problem("clock", message, remedy="run a time service such as chrony on both", level=WARNING)
    return Problem("clock", f"{where}{apart:.1f} s apart from this host", level=OK)


def _between(times: dict[str, float], asked: float) -> list[Problem]:
    """Return the problem of nodes whose clocks differ by more than the time in which they were asked explains."""
    apart = max(times.values()) - min(times.values())
    if apart <= TOLERATED_BETWEEN_NODES + asked:
        return []
    message = f"the clocks of the nodes are {apart:.1f} s apart, so leases end too early or too late"
    remedy = "run a time service such as chrony on all nodes, or connect each worker to the node of its schema"
    return [Problem("clock", message, remedy=remedy, level=WARNING)]
