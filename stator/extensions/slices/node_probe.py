"""The poll of a model whose rows are on several nodes: each shard says what there is to do in it."""

from datetime import timedelta
from functools import lru_cache

from stator.db.interface import Operations
from stator.db.probe import Alike, Open, coming, probes
from stator.extensions.slices.in_shards import Shards, text_of
from stator.statements import Statement, existing, joined, selecting

# Where the answer of a shard is true.
TRUE = "true"


def answers(operations: Operations, shards: Shards, open_rows: Open) -> list[object] | None:
    """Return the answers of :mod:`stator.db.probe`; None if the shards cannot be asked."""
    question, count = _question(Alike.of([operations]), open_rows)
    if (by_shard := shards.ask(question)) is None:
        return None
    columns = list(zip(*by_shard, strict=True))
    are_there = [TRUE in column for column in columns[:count]]
    return are_there + [_least(column) for column in columns[count:]]


def _least(seconds: tuple[str | None, ...]) -> timedelta | None:
    return min((timedelta(seconds=float(each)) for each in seconds if each is not None), default=None)


@lru_cache(maxsize=16)
def _question(alike: Alike, open_rows: Open) -> tuple[str, int]:
    """Return the question for :meth:`Shards.ask`, and how many of the answers say whether there are rows."""
    [operations] = alike.operations
    kinds = [joined(list(map(existing, some)), " OR ") for some in probes(operations, open_rows)]
    times = [selecting(rows[:1]) for rows in coming(operations, operations.settings.POLL_INTERVAL)]
    asked = [Statement.of("(", any_of, ")::text") for any_of in kinds]
    asked += [Statement.of("extract(epoch FROM (", time, "))::text") for time in times]
    return text_of(operations.connection, Statement.of("ARRAY[", joined(asked, ", "), "]")), len(kinds)
