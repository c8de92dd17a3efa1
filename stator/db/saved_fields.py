"""The fields that a state ``saves``, with the values of each outcome."""

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Self

from django.db.backends.base.base import BaseDatabaseWrapper

from stator.db.effects import AFTER, Act, Done, Effect, Part, Store
from stator.statements import JsonText

if TYPE_CHECKING:
    from stator.db.compiler import Compiler

FLAGS = ", %(saves)s::bool[]"
VALUES = ", %(value{n})s::{kind}[]"
ASSIGNED = ", {column} = CASE WHEN v.saves THEN v.value{n} ELSE {table}.{column} END"


class SavedFields(Effect):
    """Values of the row: in its own UPDATE if that can take them, all or none."""

    @classmethod
    def bind(cls, store: Store) -> Self | None:
        """Return it for models with such states."""
        return cls(store) if any(state.saves for state in store.operations.graph.states.values()) else None

    def wants(self, act: Act) -> Hashable:
        """Return the names of the fields if the UPDATE of the rows takes them."""
        if not act.saves:
            return None
        return act.saves if is_saved_at_once(act, self._compiler) else AFTER

    def part(self, act: Act, answer: Hashable) -> Part:
        """Return the columns and values: one array for each, after the flags of the outcomes that have values."""
        compiler = self._compiler
        if compiler is None:
            [(_, outcome)] = act.ended
            return Part(changes=outcome.values)
        fields = [compiler.field(name) for name in act.saves]
        kinds = [VALUES.format(n=n, kind=compiler.cast_of(field)) for n, field in enumerate(fields)]
        assigned = [
            ASSIGNED.format(n=n, column=compiler.column_of(field), table=compiler.table)
            for n, field in enumerate(fields)
        ]
        return Part(arrays="".join([FLAGS, *kinds]), names=("saves", *value_names(act)), set="".join(assigned))

    def values(self, act: Act, answer: Hashable, into: dict[str, object]) -> None:
        """Add the arrays."""
        compiler, values = self._compiler, [outcome.values for _, outcome in act.ended]
        into["saves"] = [given is not None for given in values]
        for name, array in zip(act.saves, value_names(act), strict=True):
            each = [None if given is None else given[name] for given in values]
            into[array] = _as_array(compiler.field(name), each, compiler.connection)

    def write(self, done: Done) -> None:
        """Write the values, row by row; the rows are locked."""
        for claim, outcome in done.act.ended:
            if outcome.values:
                self._operations.rows.filter(pk=claim.pk).update(**outcome.values)


def _as_array(field: Any, values: list[Any], connection: BaseDatabaseWrapper) -> list[object]:
    prepare = field.get_db_prep_save
    if JsonText in map(type, values):
        # An array has elements of one type.
        return [value if value is None or type(value) is JsonText else field.text_of(value) for value in values]
    return [None if value is None else prepare(value, connection) for value in values]


def is_saved_at_once(act: Act, compiler: "Compiler | None") -> bool:
    """Return whether the UPDATE of the rows also writes all fields that their outcomes have values for."""
    if act.computed:
        return False
    return len(act.ended) == 1 if compiler is None else not act.saves or compiler.array_types(act.saves) is not None


def value_names(act: Act) -> list[str]:
    """Return the names that the values of the fields have in ``v``."""
    return [f"value{n}" for n in range(len(act.saves))]
