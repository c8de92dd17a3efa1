"""A program's own rows for attempts, by the model's hooks ``recorded`` and ``attempts``."""

from collections.abc import Hashable
from typing import Self

from stator.db.effects import AFTER, Act, Done, Effect, Part, Store
from stator.db.saved_fields import is_saved_at_once
from stator.rows.hooks import AttemptRecords
from stator.statements import PROGRAM, Parameter, Statement, joined, written

ATTEMPTS = """,
attempts AS (INSERT INTO {into} ({columns}) SELECT {values} FROM done)"""


class RecordedAttempts(Effect):
    """The rows for attempts that have begun. One statement writes those of moves without an error."""

    @classmethod
    def bind(cls, store: Store) -> Self | None:
        """Return it for models with the hook, except in programs that keep other records of their claims."""
        return cls(store) if store.operations.recorded else None

    def wants(self, act: Act) -> Hashable:
        """Return a key if the rows are copied from the rows of the model, as they were and as they are."""
        if not act.begun:
            return None
        copied = self._inserts and self._operations.hooks.attempts and act.moved and not act.failed
        if not copied or any(claim.notes for claim in act.claims) or not is_saved_at_once(act, self._compiler):
            return AFTER
        return "attempts"

    def part(self, act: Act, answer: Hashable) -> Part:
        """Return the INSERT of the rows."""
        records, compiler = self._records, self._compiler
        meta, before, after = records.model._meta, list(records.before.values()), list(records.after.values())
        copied = [f"before{n}" for n in range(len(before))] + [f"after{n}" for n in range(len(after))]
        given = [compiler.value(meta.get_field(name), Parameter(PROGRAM + name, None)) for name in records.given]
        columns = [compiler.column_of(meta.get_field(name)) for name in records.names]
        was = [f"t.{compiler.column_of(compiler.field(name))} AS before{n}" for n, name in enumerate(before)]
        own = [f"{compiler.table}.{compiler.column_of(compiler.field(name))}" for name in after]
        return Part(
            passed=tuple(was),
            returned=(
                *(f"v.before{n}" for n in range(len(before))), *(f"{name} AS after{n}" for n, name in enumerate(own)),
            ),
            after=written(
                ATTEMPTS, into=compiler.quote(meta.db_table), columns=", ".join(columns),
                values=joined([*map(Statement, copied), *given], ", "),
            ),
        )  # fmt: skip

    def values(self, act: Act, answer: Hashable, into: dict[str, object]) -> None:
        """Add the values that all rows have."""
        into.update({PROGRAM + name: value for name, value in self._records.given.items()})

    def write(self, done: Done) -> None:
        """Have the program write its rows."""
        self._operations.recorded(self._operations.alias, done.act.ended)

    @property
    def _records(self) -> AttemptRecords:
        operations = self._operations
        records: AttemptRecords = operations.hooks.attempts(operations.worker_id, operations.alias)
        return records
