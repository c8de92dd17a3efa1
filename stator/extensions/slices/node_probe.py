"""The poll of a model whose rows are on several nodes: each of them takes the first row of each kind in each shard."""

from functools import lru_cache
from typing import Any

from django.db.models import QuerySet

from stator.db import sql
from stator.db.interface import Operations
from stator.db.probe import Alike, Open, answers_about, coming, probes
from stator.statements import Statement, joined, selecting, written

# The same answers about a table over nodes, which would all be asked for each EXISTS. Citus wants the last LIMIT.
OVER_NODES = "SELECT {answers} FROM ({rows}) looked_at LIMIT 1"
IN_SHARD = "(SELECT {spread}, {n} AS n, {left} AS left_over FROM ({rows}) found)"


def answers(operations: Operations, name: str, column: str, open_rows: Open) -> list[Any]:
    """Return the answers of :mod:`stator.db.probe`; ``name`` and ``column`` say on which node a row is."""
    statement = _statement(Alike.of([operations]), open_rows, name, column)
    [found] = operations.fetch(statement.text, statement.params, sql.IN_SHARDS, often=True)
    return list(found)[: answers_about(operations)]


@lru_cache(maxsize=16)
def _statement(alike: Alike, open_rows: Open, name: str, column: str) -> Statement:
    [operations] = alike.operations
    times = coming(operations, operations.settings.POLL_INTERVAL)
    asked: list[tuple[str, str, list[QuerySet[Any, Any]]]] = [
        ("bool_or(n = {n})", "NULL::interval", [found.values(name) for found in some])
        for some in probes(operations, open_rows)
    ]
    asked += [("min(left_over) FILTER (WHERE n = {n})", '"left"', [found.values(name, "left")]) for found in times]
    answers = ", ".join(answer.format(n=n) for n, (answer, _, _) in enumerate(asked))
    rows = [
        written(IN_SHARD, n=str(n), left=left, spread=column, rows=selecting(found[:1]))
        for n, (_, left, some) in enumerate(asked)
        for found in some
    ]
    return written(OVER_NODES, answers=answers, rows=joined(rows, " UNION ALL "))
