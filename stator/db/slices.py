"""Which slices of a model with ``spread`` a claim takes rows of: one after the other, so that each has its turn."""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from django.db import DatabaseError
from django.db.models import F, Model, QuerySet
from django.db.models.expressions import RawSQL

from stator.db import sql
from stator.db.interface import Operations
from stator.db.retry import is_of_node
from stator.graph import State
from stator.rows.claimable import Crashes
from stator.rows.indexes import line_of_all
from stator.statements import Parameter, Statement, selecting, written

# How many slices are claimed from before a statement finds out which of them have rows, or takes rows of all together.
LIKELY = 4

# The most values that one statement finds.
MAX_FOUND = 50

# A claim ends after this many slices without a row. Other workers may have taken them, or somebody has locked them.
MAX_EMPTY = 64

# One step along the index for each value; DISTINCT would read all rows of a value to get past it. Index ``st_ready``.
VALUES = """
WITH RECURSIVE found(value, n) AS (
  SELECT first.value, 1 FROM ({first}) AS first(value)
  UNION ALL
  SELECT next.value, n + 1 FROM found CROSS JOIN LATERAL ({next}) AS next(value) WHERE n < {most})
SELECT value FROM found
"""


class Slices:
    """The turns of the slices of one model, for one worker."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._statements: dict[tuple[object, ...], Statement] = {}

    def in_turn(self, states: list[State], crashes: Crashes, *, many: bool) -> Iterator[Operations]:
        """Yield slices that have rows to claim, or the operations on all; ``many``: the last claim was full."""
        raise NotImplementedError

    def _rows(self, states: list[State], crashes: Crashes) -> QuerySet[Model]:
        return self._operations.open_rows(states).filter(self._operations.crashed(crashes))

    def _kept(self, states: list[State], *kind: object, make: Callable[[], Statement]) -> Statement:
        """Return a statement, which is kept while all such rows are open."""
        operations = self._operations
        if operations.open_to_me() or (operations.pauses and operations.pauses.partial):
            return make()
        key = tuple(state.name for state in states), *kind
        if key not in self._statements:
            self._statements[key] = make()
        return self._statements[key]


class NumberedSlices(Slices):
    """The slices of a column that Stator adds."""

    def __init__(self, operations: Operations) -> None:
        super().__init__(operations)
        self._line: list[Operations] = []

    def in_turn(self, states: list[State], crashes: Crashes, *, many: bool) -> Iterator[Operations]:
        """Yield the next slices if rows are many, because they are likely to be enough; then those with rows."""
        self._line = self._line or self._operations.numbered
        if many:
            yield from self._sent_back(self._line[:LIKELY])
        looking = self._kept(states, crashes, make=lambda: self._operations.looking([self._rows(states, crashes)]))
        wanted = {part.slice for part in self._operations.found(looking)}
        yield from self._sent_back([part for part in self._line if part.slice in wanted])

    def _sent_back(self, parts: list[Operations]) -> Iterator[Operations]:
        for part in parts:
            self._line.remove(part)
            self._line.append(part)
            yield part


class Round:
    """Where a round through the values is: the ``found`` ones that have their turn next, and the ``last`` one found."""

    __slots__ = ("found", "last")

    def __init__(self) -> None:
        self.found: list[object] = []
        self.last: object = None


class FreeSlices(Slices):
    """The slices of a field of the project, whose values nobody knows beforehand: they are found in their order."""

    def __init__(self, operations: Operations) -> None:
        super().__init__(operations)
        self._rounds: dict[tuple[str, ...], Round] = defaultdict(Round)

    def in_turn(self, states: list[State], crashes: Crashes, *, many: bool) -> Iterator[Operations]:
        """Yield the slices of values with rows: from where the last claim ended to the end, then from the beginning.

        On one server, a few values that are not enough are followed by the operations on all: one statement for them
        meets all partitions, but very many values with few rows would take a statement each. While a node is away, the
        values are those that were met before.
        """
        operations = self._operations
        if operations.capabilities.has_nodes:
            try:
                yield from self._in_turn(states, crashes)
            except DatabaseError as error:
                if not is_of_node(error):
                    raise
                yield from _mixed(operations.known_slices)
            return
        if crashes is Crashes.NONE:
            yield from islice(self._in_turn(states, crashes), LIKELY)
        yield operations

    def _in_turn(self, states: list[State], crashes: Crashes) -> Iterator[Operations]:
        operations = self._operations
        if crashes is not Crashes.NONE:
            # Such rows are few, and the index of them is by itself.
            yield from _mixed(operations.found(operations.looking([self._rows(states, crashes)])))
            return
        turn = self._rounds[tuple(state.name for state in states)]
        for start in [None] if turn.last is None else [turn.last, None]:
            turn.last = start
            while turn.found or self._find(turn, states):
                yield operations.of_slice(turn.found.pop())

    def _find(self, turn: Round, states: list[State]) -> bool:
        """Find the values that have their turn next; return whether there are any."""
        operations = self._operations
        is_first = turn.last is None
        statement = self._kept(states, is_first, make=lambda: self._finding(states, is_first=is_first))
        params = statement.bind(operations.connection, {"last": turn.last})
        found = [value for (value,) in operations.fetch(statement.text, params, sql.IN_ORDER, often=True)]
        if found:
            turn.last = found[-1]
            turn.found = _mixed(found)
        return bool(found)

    def _finding(self, states: list[State], *, is_first: bool) -> Statement:
        operations = self._operations
        name, rows = operations.spread_name, self._rows(states, Crashes.NONE)

        def after(value: Any) -> QuerySet[Any]:
            return rows.filter(**{f"{name}__gt": value})

        first = rows if is_first else after(Parameter("last", operations.spread))
        if operations.capabilities.has_nodes:
            # Citus asks all nodes at once for a DISTINCT, and has no recursive statement over several of them.
            return selecting(first.order_by(F(name)).values(name).distinct()[:MAX_FOUND])
        one, another = (
            selecting(part.order_by(*line_of_all(operations.model)).values(name)[:1])
            for part in (first, after(RawSQL("found.value", [])))
        )
        return written(VALUES, first=one, next=another, most=str(MAX_FOUND))


def _mixed(found: list[Any]) -> list[Any]:
    """Return values in any order, so that workers do not go from one to the next together."""
    return random.sample(found, len(found))
