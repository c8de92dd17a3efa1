"""The servers of a database: one, or all nodes of a cluster of Citus."""

import json
from collections.abc import Mapping
from typing import Any

from django.db import OperationalError, connections

from stator.capabilities import capabilities_of
from stator.db.values import Row

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
    with connection.cursor() as cursor:
        if not capabilities_of(connection).has_nodes:
            cursor.execute(statement, params)
            return [("", list(cursor.fetchall()))]
        cursor.execute(ON_NODES, [AS_JSON.format(connection.ops.compose_sql(statement, params))])
        found = cursor.fetchall()
    for name, is_answer, result in found:
        if not is_answer:
            raise OperationalError(f"node {name}: {result}")
    return [(f"node {name}: ", [tuple(row.values()) for row in json.loads(result)]) for name, _, result in found]


def tables_on(alias: str, tables: list[str]) -> list[str]:
    """Return the names that tables have on the servers."""
    connection = connections[alias]
    if not capabilities_of(connection).has_nodes:
        return tables
    with connection.cursor() as cursor:
        cursor.execute(SHARDS, [tables])
        return [*tables, *(name for (name,) in cursor.fetchall())]
