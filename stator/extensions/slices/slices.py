"""Slices of a model with ``spread``: a store for the rows with each value, so that a statement meets one partition.

``spread`` is a column that Stator adds, whose values are numbers, or a field of the project, whose values nobody knows.
Claims take rows of one slice after the other, so that each has its turn. On several nodes, a statement is for one.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import islice
from random import sample
from typing import Any, TypeVar, cast
from uuid import UUID

from django.db import DatabaseError
from django.db.models import F, Field, Model, Q, QuerySet
from django.db.models.expressions import RawSQL

from stator.db import sql
from stator.db.conditions import CLAIM
from stator.db.division import DIVISIONS, Undivided
from stator.db.interface import Claim, Operations, new_token
from stator.db.probe import Open
from stator.db.retry import is_of_remote
from stator.db.suspensions import ResumptionPace, Suspensions
from stator.extensions.slices import node_probe
from stator.extensions.slices.away import is_away, patience
from stator.extensions.slices.in_shards import Shards, text_of
from stator.graph import State
from stator.rows.claimable import Crashes
from stator.rows.indexes import line_of_all
from stator.rows.meta import column_of, field_of
from stator.rows.spread import SPREAD, SpreadField, is_in_one_line, spread_field
from stator.scopes import are_apart
from stator.statements import Parameter, Statement, joined, selecting, written

# How many slices are claimed from before a statement finds out which of them have rows, or takes rows of all together.
LIKELY = 4

# The most values that one statement finds.
MAX_FOUND = 50

# A claim ends after this many slices without a row. Other workers may have taken them, or somebody has locked them.
MAX_EMPTY = 64

# Seconds until the rows of an abandoned claim are released, and again: its node may still do it when it is back. How
# often they are looked for; after that the lease has to end.
GIVING_BACK, GIVEN_BACK = ResumptionPace(0.5, 16.0), 7

# The step that releases them.
GIVE_BACK = "give back"

# How many rows are read to find out which slices have some.
MOST_LOOKED_AT = 10_000
# How many slices are kept; the least recently used ones are made again.
MAX_SLICES = 1000
DIFFERENT = "SELECT DISTINCT {column} FROM ({rows}) looked_at"
DIFFERENT_THERE = "ARRAY(SELECT DISTINCT {column}::text FROM ({rows}) looked_at)"

# One step along the index for each value; DISTINCT would read all rows of a value to get past it. Index ``st_ready``.
VALUES = """
WITH RECURSIVE found(value, n) AS (
  SELECT first.value, 1 FROM ({first}) AS first(value)
  UNION ALL
  SELECT next.value, n + 1 FROM found CROSS JOIN LATERAL ({next}) AS next(value) WHERE n < {most})
SELECT value FROM found
"""

T = TypeVar("T")


def connect() -> None:
    """Let them be what divides the rows of a model."""
    DIVISIONS.of = division_of


def division_of(operations: Operations) -> Undivided:
    """Return how the rows of a model are divided."""
    field = spread_field(operations.model)
    if field is None:
        return Undivided(operations)
    if isinstance(field, SpreadField):
        return CommonLine(operations, field) if is_in_one_line(field) else Divided(operations, field)
    return FreelyDivided(operations, field)


class Slice(Undivided):
    """The division of a store that is a slice."""

    is_limited = True

    def __init__(self, store: Operations, of: "Divided") -> None:
        super().__init__(store)
        self._of = of
        # Citus plans no statement for one node whose value is a parameter.
        is_known = not isinstance(store.part, Parameter)
        self.has_own_text = store.scope.node is not None and not of.is_free and is_known
        self.moves = (of.name,) if of.is_free else ()

    @property
    def template(self) -> Operations:
        return self._of.template_of(self.store)

    @property
    def anywhere(self) -> QuerySet[Model]:
        return self.store.undivided if self._of.is_free else self.store.rows

    def sharing_by(self, name: str | None) -> str | None:
        return None if name and field_of(self.store.model, name) is self._of.field else name

    def at(self, value: object) -> Operations:
        return self._of.of_value(value)

    def only_mine(self, records: QuerySet[Model]) -> QuerySet[Model]:
        if records.model._meta.label not in self.store.options.beside:
            return records
        return records.filter(**{self._of.name: self.store.part})

    def within(self, table: str) -> Statement:
        value = str(self.store.part) if self.has_own_text else written("%(part)s")
        return written(" AND {table}.{column} = {value}", table=table, column=self._of.column, value=value)


class Divided(Undivided):
    """The rows of a model in slices by the values of a column that Stator adds."""

    is_free = False

    def __init__(self, store: Operations, field: Field) -> None:
        super().__init__(store)
        self.field = field
        self.name: str = field.attname
        # The values whose slices were made, the latest last.
        self._met: dict[object, None] = {}
        self._is_filled = False
        # The claims that were given up because their node was silent, by slice and token.
        self._abandoned = Suspensions(GIVING_BACK)
        self.shards = Shards(self)
        self._turns: Slices = (FreeSlices if self.is_free else NumberedSlices)(self)

    @cached_property
    def of_value(self) -> Callable[[object], Operations]:
        """A function that returns the slice of a value."""
        return lru_cache(maxsize=MAX_SLICES)(self._of_value)

    @property
    def column(self) -> str:
        """The quoted column."""
        return str(self.store.connection.ops.quote_name(column_of(self.field)))

    @property
    def is_divided(self) -> bool:  # type: ignore[override]
        return bool(self.store.capabilities.has_partitions)

    @property
    def may_be_divided(self) -> bool:  # type: ignore[override]
        return self.is_divided

    @property
    def spans(self) -> bool:  # type: ignore[override]
        return self.is_divided and self.store.capabilities.has_nodes

    def known(self) -> list[Operations]:
        """Return the slices that are known without asking every node."""
        return list(map(self.of_value, SPREAD))

    def parts(self) -> list[Operations]:
        return self.known() if self.is_divided else [self.store]

    def parts_with(self, *rows: QuerySet[Model]) -> list[Operations]:
        if not self.is_divided:
            return [self.store]
        return self.with_rows(self.looking(rows)) if rows else []

    def part_with(self, row: object) -> Operations:
        return self.of_value(getattr(row, self.name)) if self.is_divided else self.store

    def near(self, row: object) -> Operations:
        return self.part_with(row)

    def at(self, value: object) -> Operations:
        return self.of_value(value)

    def looking(self, parts: Iterable[QuerySet[Model]]) -> Statement:
        """Return the statement that finds the slices with rows of querysets, for :meth:`found`."""
        each = [Statement.of("(", selecting(self._looked_at(rows)), ")") for rows in parts]
        return written(DIFFERENT, column=self.column, rows=joined(each, " UNION ALL "))

    def question(self, rows: QuerySet[Model]) -> str:
        """Return the question to each shard that finds the slices with rows of a queryset."""
        question = written(DIFFERENT_THERE, column=self.column, rows=selecting(self._looked_at(rows)))
        return text_of(self.store.connection, question)

    def _looked_at(self, rows: QuerySet[Model]) -> QuerySet[Any]:
        return rows.order_by().values(self.name)[:MOST_LOOKED_AT]

    def with_rows(self, looking: Statement, question: str = "") -> list[Operations]:
        """Return the slices that a statement finds; all that are known if a node is away, since it meets every node.

        ``question``: what to ask the shards instead, if that can be done.
        """
        try:
            if question and (answers := self.shards.ask(question)) is not None:
                return [self.of_value(self.field.to_python(value)) for answer in answers for value in answer]
            return [self.of_value(value) for (value,) in self.store.fetch(looking.text, looking.params, often=True)]
        except DatabaseError as error:
            if not is_of_remote(error):
                raise
            return self.known()

    def counts(self, kinds: Sequence[QuerySet[Model]], most: int) -> list[int]:
        # Because of the limit, Citus would have the rows of every shard sent to the coordinator. Many rows are mostly
        # in all shards, so that a part of each is enough.
        for limit in (most // 16 + 1, most) if self.spans else ():
            first = [selecting(rows.order_by().values("pk")[:limit]) for rows in kinds]
            each = [Statement.of("(SELECT count(*) FROM (", rows, ") counted)::text") for rows in first]
            answers = self.shards.ask(text_of(self.store.connection, Statement.of("ARRAY[", joined(each, ", "), "]")))
            if answers is None:
                break
            counts = [[int(count or 0) for count in some] for some in zip(*answers, strict=True)]
            if all(sum(some) >= most or max(some) < limit for some in counts):
                return [min(most, sum(some)) for some in counts]
        return super().counts(kinds, most)

    def shares(self, picked: QuerySet[Model], limit: int) -> Iterator[tuple[Operations, int]]:
        if not self.is_divided:
            yield self.store, limit
            return
        try:
            with patience(self.store, everywhere=True):
                counts = Counter(picked.values_list(self.name, flat=True)[:limit])
        except DatabaseError as error:
            # Each node was asked, and one is away.
            if not is_of_remote(error) or self.store.connection.in_atomic_block:
                raise
            counts = Counter(dict.fromkeys(sample(SPREAD, len(SPREAD)), limit))
        for value, count in counts.items():
            yield self.of_value(value), count

    def claim(
        self, states: list[State], limit: int, *, token: UUID | None = None, crashes: Crashes = Crashes.NONE
    ) -> list[Claim]:
        """Claim in one slice after the other until there are enough rows; each has its turn."""
        operations, claimed = self.store, list[Claim]()
        states = operations.claims.running(states)
        if not states:
            return []
        if not self.is_divided:
            return list(operations.claim_together(states, limit, token=token, crashes=crashes))
        token = token or new_token(operations.worker_id)
        enough, empty = self.enough(limit), 0
        if operations.conditions.gates(states):
            # It counts rows on every node.
            with patience(operations, everywhere=True):
                enough = limit = operations.conditions.room(states, limit)
        parts = self._turns.in_turn(states, crashes, many=self._is_filled)
        while len(claimed) < enough and empty < MAX_EMPTY and (part := next(parts, None)):
            came = self._claim_part(part, states, limit - len(claimed), token, crashes)
            empty = 0 if came else empty + 1
            claimed += came
        self._is_filled = len(claimed) >= enough
        return claimed

    def enough(self, limit: int) -> int:
        # On nodes, each slice costs a statement. Values of a field may have few rows each, so that takes them all.
        return (limit + 1) // 2 if self.spans and not self.is_free else limit

    def _claim_part(
        self, part: Operations, states: list[State], limit: int, token: UUID, crashes: Crashes
    ) -> list[Claim]:
        """Claim rows of a slice, unless it is on a node that is away."""
        if part.scope.node is None:
            return part.claim_together(states, limit, token=token, crashes=crashes)
        if part.locks.allow(CLAIM) and not is_away(part):
            with part.locks.spared(CLAIM):
                try:
                    return part.claim_together(states, limit, token=token, crashes=crashes)
                except DatabaseError as error:
                    if is_of_remote(error):
                        self._abandoned.suspend((part, token), str(error))
                    raise
        return []

    def settle(self) -> None:
        """Release the rows of abandoned claims on nodes that are back; a node may do what it was sent when it wakes."""
        for key, suspension in self._abandoned.held.items():
            part, token = cast("tuple[Operations, UUID]", key)
            if not self._abandoned.allow(key) or not part.locks.allow(GIVE_BACK) or is_away(part):
                continue
            with part.locks.spared(GIVE_BACK):
                if part.release_token(token) or suspension.times == GIVEN_BACK:
                    self._abandoned.end(key)
                else:
                    self._abandoned.suspend(key, suspension.reason)

    def release_token(self, token: object) -> int:
        """Release the rows on every node; if one is away, raise the error when those on the others are released."""
        released, away = 0, None
        for part in self.parts():
            try:
                released += part.release_token(cast("UUID", token))
            except DatabaseError as error:
                if not is_of_remote(error):
                    raise
                away = error
        if away is not None:
            raise away
        return released

    def answers(self, open_rows: Open) -> list[object] | None:
        if self._abandoned.held:
            self.settle()
        # Conditions of others may be on tables elsewhere.
        if not self.spans or self.store.conditions.rows():
            return None
        return node_probe.answers(self.store, self.shards, open_rows)

    def addressed(self, value: object) -> Operations:
        """Return a slice for statements to the node of a value; none of its rows need have it."""
        part = self._made(self.store, value)
        part.division.has_own_text = True
        return part

    def template_of(self, part: Operations) -> Operations:
        """Return the slice whose value is to be given."""
        return self._made(part, Parameter("part", self.field))

    def _of_value(self, value: object) -> Operations:
        self._met[value] = None
        if len(self._met) > MAX_SLICES:
            self._met.pop(next(iter(self._met)), None)
        return self._made(self.store, value)

    def _made(self, store: Operations, value: object) -> Operations:
        has_nodes = self.store.capabilities.has_nodes
        scope = replace(self.store.scope, where=Q(**{self.name: value}), node=value if has_nodes else None)
        part = store.limited(scope, value, has_own_locks=has_nodes)
        part.division = Slice(part, self)
        part.bind()
        return part


class CommonLine(Divided):
    """Slices of a table whose rows stand in one line: claims take rows of one slice only on several nodes."""

    @property
    def is_divided(self) -> bool:  # type: ignore[override]
        # No statement locks rows of several nodes. To know it takes a statement.
        return are_apart(self.store.model, self.store.alias)

    @property
    def may_be_divided(self) -> bool:  # type: ignore[override]
        return bool(self.store.capabilities.has_nodes)

    def near(self, row: object) -> Operations:
        """Return the slice of a row; those of the first are found without it: most such tables are not divided."""
        if not self.store.capabilities.has_partitions:
            return self.store
        value = getattr(row, self.name)
        return self.of_value(value) if value else self.store


class FreelyDivided(Divided):
    """Slices by a field of the project: nobody knows its values, and rows may get other ones."""

    is_free = True

    @property
    def anywhere(self) -> QuerySet[Model]:
        return self.store.undivided

    def sharing_by(self, name: str | None) -> str | None:
        return self.name if self.store.capabilities.has_partitions else name

    def known(self) -> list[Operations]:
        """Return the slices that were met."""
        return list(map(self.of_value, list(self._met)))

    def parts(self) -> list[Operations]:
        if self._is_whole_for_chores:
            return [self.store]
        every = self.store.undivided.order_by(F(self.name)).values_list(self.name, flat=True).distinct()
        try:
            with patience(self.store, everywhere=True):
                return list(map(self.of_value, every))
        except DatabaseError as error:
            if not is_of_remote(error):
                raise
            return self.known()

    def parts_with(self, *rows: QuerySet[Model]) -> list[Operations]:
        return [self.store] if self._is_whole_for_chores else super().parts_with(*rows)

    @property
    def _is_whole_for_chores(self) -> bool:
        # Chores find rows in an order without the field, whose values may be thousands. Only nodes have to be met one
        # by one.
        return not self.store.capabilities.has_nodes


class Slices:
    """The turns of the slices of one model, for one worker."""

    def __init__(self, division: Divided) -> None:
        self._division = division
        self._operations: Operations = division.store
        self._statements: dict[tuple[object, ...], Any] = {}

    def in_turn(self, states: list[State], crashes: Crashes, *, many: bool) -> Iterator[Operations]:
        """Yield slices that have rows to claim, or the operations on all; ``many``: the last claim was full."""
        raise NotImplementedError

    def _rows(self, states: list[State], crashes: Crashes) -> QuerySet[Model]:
        return self._operations.open_rows(states).filter(self._operations.crashed(crashes))

    def _kept(self, states: list[State], *kind: object, make: Callable[[], T]) -> T:
        """Return what is made of rows, which is kept while all such rows are open."""
        operations = self._operations
        if operations.conditions.rows():
            return make()
        key = tuple(state.name for state in states), *kind
        if key not in self._statements:
            self._statements[key] = make()
        return cast("T", self._statements[key])


class NumberedSlices(Slices):
    """The slices of a column that Stator adds."""

    def __init__(self, division: Divided) -> None:
        super().__init__(division)
        self._line: list[Operations] = []

    def in_turn(self, states: list[State], crashes: Crashes, *, many: bool) -> Iterator[Operations]:
        """Yield the next slices if rows are many, because they are likely to be enough; then those with rows."""
        self._line = self._line or self._division.known()
        if many:
            yield from self._sent_back(self._line[:LIKELY])
        looking, question = self._kept(states, crashes, make=lambda: self._looking(states, crashes))
        wanted = {part.part for part in self._division.with_rows(looking, question)}
        yield from self._sent_back([part for part in self._line if part.part in wanted])

    def _looking(self, states: list[State], crashes: Crashes) -> tuple[Statement, str]:
        """Return the statement that finds the slices with rows, and the question to shards of which no other asks."""
        division, rows = self._division, self._rows(states, crashes)
        # Other tables may be elsewhere.
        is_alone = division.spans and not self._operations.conditions.rows()
        return division.looking([rows]), division.question(rows) if is_alone else ""

    def _sent_back(self, parts: list[Operations]) -> Iterator[Operations]:
        for part in parts:
            self._line.remove(part)
            self._line.append(part)
            yield part


class Round:
    """Where a round through the values is: the ``found`` ones that have their turn next, and the ``last`` one found."""

    __slots__ = ("free", "last")

    def __init__(self) -> None:
        self.free: list[object] = []
        self.last: object = None


class FreeSlices(Slices):
    """The slices of a field of the project, whose values nobody knows beforehand: they are found in their order."""

    def __init__(self, division: Divided) -> None:
        super().__init__(division)
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
                if not is_of_remote(error):
                    raise
                yield from _mixed(self._division.known())
            return
        if crashes is Crashes.NONE:
            yield from islice(self._in_turn(states, crashes), LIKELY)
        yield operations

    def _in_turn(self, states: list[State], crashes: Crashes) -> Iterator[Operations]:
        if crashes is not Crashes.NONE:
            # Such rows are few, and the index of them is by itself.
            yield from _mixed(self._division.with_rows(self._division.looking([self._rows(states, crashes)])))
            return
        turn = self._rounds[tuple(state.name for state in states)]
        for start in [None] if turn.last is None else [turn.last, None]:
            turn.last = start
            while turn.free or self._find(turn, states):
                yield self._division.of_value(turn.free.pop())

    def _find(self, turn: Round, states: list[State]) -> bool:
        """Find the values that have their turn next; return whether there are any."""
        operations = self._operations
        is_first = turn.last is None
        statement = self._kept(states, is_first, make=lambda: self._finding(states, is_first=is_first))
        params = statement.bind(operations.connection, {"last": turn.last})
        values = [value for (value,) in operations.fetch(statement.text, params, sql.IN_ORDER, often=True)]
        if values:
            turn.last = values[-1]
            turn.free = _mixed(values)
        return bool(values)

    def _finding(self, states: list[State], *, is_first: bool) -> Statement:
        operations = self._operations
        name, rows = self._division.name, self._rows(states, Crashes.NONE)

        def after(value: object) -> QuerySet[Any]:
            return rows.filter(**{f"{name}__gt": value})

        first = rows if is_first else after(Parameter("last", self._division.field))
        if operations.capabilities.has_nodes:
            # Citus asks all nodes at once for a DISTINCT, and has no recursive statement over several of them.
            return selecting(first.order_by(F(name)).values(name).distinct()[:MAX_FOUND])
        one, another = (
            selecting(part.order_by(*line_of_all(operations.model)).values(name)[:1])
            for part in (first, after(RawSQL("found.value", [])))
        )
        return written(VALUES, first=one, next=another, most=str(MAX_FOUND))


def _mixed(values: list[T]) -> list[T]:
    """Return values in any order, so that workers do not go from one to the next together."""
    return random.sample(values, len(values))
