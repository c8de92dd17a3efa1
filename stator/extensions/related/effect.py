"""The record of rows that others wait for.

Rows that *hand on*, see :mod:`stator.extensions.related.watches`, need only one statement: it locks an unfinished row
for each object that waits for all of its rows. The statement leaves out other rows, and their moves are followed up
after it.
"""

from collections.abc import Collection, Hashable
from functools import cached_property
from typing import Any, Self, cast

from stator.db.effects import AFTER, Act, Part, Store
from stator.db.followed_moves import FollowedMoves
from stator.extensions.related.watches import RelatedWatch, watchers_of
from stator.statements import Statement, written

# The objects that wait for all of their rows, each with whether one of its unfinished rows is locked now; the move of
# that row comes after this commit. The rows that are written are still claimed in this snapshot. The range of states
# only repeats the list. The planner does not know it and expects few rows, so it uses the index over both columns, even
# if its statistics are of a table where all rows were unfinished.
HANDED_ON = """,
handed{n} AS MATERIALIZED (
  SELECT waiting, (SELECT s.{pk} FROM {table} s WHERE s.{column} = waiting AND s.{state} = ANY(%(unfinished{n})s)
    AND s.{state} >= (SELECT min({state}) FROM unnest(%(unfinished{n})s::{type}[]) {state})
    AND s.{state} <= (SELECT max({state}) FROM unnest(%(unfinished{n})s::{type}[]) {state})
    AND s.state_claim IS NULL LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) IS NOT NULL AS is_handed
  FROM (SELECT DISTINCT waiting{n} AS waiting FROM mine WHERE waiting{n} IS NOT NULL) each)"""
IF_HANDED_ON = " AND (v.waiting{n} IS NULL OR v.waiting{n} IN (SELECT waiting FROM handed{n} WHERE is_handed))"

# Stands for a key that an instance was read without.
UNREAD = object()


class HandedOn(FollowedMoves):
    """The moves of rows that others wait for, into states where nothing else follows."""

    picky = True
    follows = True

    @classmethod
    def bind(cls, store: Store) -> Self | None:
        """Return it for models whose rows are awaited in such a state."""
        return cls(store) if store.operations.entries - store.operations.followed else None

    def wants(self, act: Act) -> Hashable:
        """Return the foreign keys of the objects that wait, if there is nothing to do for rows that hand on."""
        source, to = act.edge
        if not act.claims or to not in self._own or super().wants(act) or not self._is_awaited(act):
            return None
        if self._compiler is None or source in self._operations.exits:
            return AFTER
        return tuple(watch.key for watch in self._handed_on.get(to, ())) or AFTER

    def part(self, act: Act, answer: Hashable) -> Part:
        """Return the parts that lock an unfinished row for each object, and leave out rows whose object has none."""
        compiler, names = self._compiler, list(cast("Collection[str]", answer))
        columns = [compiler.column_of(compiler.field(name)) for name in names]
        of_table = {"pk": compiler.pk, "table": compiler.table, "state": compiler.state}
        of_table["type"] = compiler.cast_of(self._operations.state_field)
        return Part(
            passed=tuple(f"t.{column} AS waiting{n}" for n, column in enumerate(columns)),
            before=Statement.of(
                *(written(HANDED_ON.replace("{n}", str(n)), column=each, **of_table) for n, each in enumerate(columns))
            ),
            only="".join(IF_HANDED_ON.replace("{n}", str(n)) for n, _ in enumerate(columns)),
        )

    def values(self, act: Act, answer: Hashable, into: dict[str, object]) -> None:
        """Add the unfinished states."""
        for n, watch in enumerate(self._handed_on[act.edge[1]]):
            into[f"unfinished{n}"] = watch.unfinished_values

    def _is_awaited(self, act: Act) -> bool:
        """Return whether one of the rows has an object that may wait for it."""
        keys = self._fixed_keys.get(act.edge[1])
        if keys is None:
            return True
        for claim in act.claims:
            # The instance of a claim whose outcome is written again may be gone, and one that nobody can read lacks it.
            row = claim.instance.__dict__ if claim.instance is not None else {}
            for key in keys:
                if row.get(key, UNREAD) is not None:
                    return True
        return False

    @cached_property
    def _own(self) -> frozenset[str]:
        """The states where this does what follows."""
        entries: frozenset[str] = self._operations.entries
        return entries - self._operations.followed

    @cached_property
    def _fixed_keys(self) -> dict[str, list[str]]:
        """The states that only edges by fixed keys of the rows wait for, each with the columns of these keys."""
        operations, keys = self._operations, {}
        for state in self._own:
            names = {watch.key for watch in self._watchers(state)}
            if names.issubset(operations.options.fixed):
                fields: list[Any] = [operations.model._meta.get_field(name) for name in sorted(names)]
                keys[state] = [field.attname for field in fields]
        return keys

    @cached_property
    def _handed_on(self) -> dict[str, list[RelatedWatch]]:
        """The states whose entry does nothing if an unfinished related row can be locked for each of these edges."""
        operations, handed_on = self._operations, dict[str, list[RelatedWatch]]()
        # Related rows of a slice may be on other nodes.
        for state in () if operations.scope.node is not None else self._own:
            watches = self._watchers(state)
            if all(watch.hands_on for watch in watches):
                handed_on[state] = list({(watch.key, watch.unfinished): watch for watch in watches}.values())
        return handed_on

    def _watchers(self, state: str) -> list[RelatedWatch]:
        return [watch for watch in watchers_of(self._operations.model) if state in watch.condition.in_]
