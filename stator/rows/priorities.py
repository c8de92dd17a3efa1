"""The order by ``StatorMeta.priority`` as one ascending number, so that each index and each statement sorts alike.

Databases differ in where nulls come, and some have no descending indexes.
"""

from dataclasses import dataclass

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import BigIntegerField, F, Field, Func, GeneratedField, Model
from django.db.models.sql.compiler import SQLCompiler

from stator.rows.meta import field_of, options_of

# The number of rows without a priority.
LAST = 2**63 - 1


class Urgency(Func):
    """The place of a row by a column that may be null, where smaller is sooner.

    The number is a part of the text: an index on an expression serves only statements that spell it the same way.
    """

    output_field = BigIntegerField()
    template = f"COALESCE(%(expressions)s, {LAST})"
    arity = 1


class Inverse(Urgency):
    """The place of a row by a column where larger is sooner. Minus one, since the smallest number has no opposite."""

    template = f"COALESCE(-1 - %(expressions)s, {LAST})"

    def as_mysql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> tuple[str, tuple[object, ...]]:
        """Compile for columns without a sign as well, whose differences must not be negative."""
        template = f"COALESCE(-1 - CAST(%(expressions)s AS SIGNED), {LAST})"
        return self.as_sql(compiler, connection, template=template)


@dataclass(frozen=True, slots=True)
class Priority:
    """The field of a model's priority, and whether larger is sooner."""

    field: Field
    inverse: bool

    @property
    def kind(self) -> type[Urgency] | None:
        """The expression around the column; None for the column alone, which may be neither null nor inverse."""
        if self.inverse:
            return Inverse
        # Django does not know whether a generated column may be null.
        return Urgency if self.field.null or isinstance(self.field, GeneratedField) else None

    @property
    def expression(self) -> F | Urgency:
        """The ascending number."""
        column = F(self.field.name)
        return self.kind(column) if self.kind else column

    def sql(self, column: str) -> str:
        """Return the expression on PostgreSQL, around a quoted column."""
        return self.kind.template % {"expressions": column} if self.kind else column

    def place(self, value: int | None) -> int:
        """Return the number of a value."""
        if value is None:
            return LAST
        return -1 - value if self.inverse else value


def priority_of(model: type[Model]) -> Priority | None:
    """Return the priority of a model; None if it has none."""
    name = options_of(model).priority
    return Priority(field_of(model, name.removeprefix("-")), name.startswith("-")) if name else None
