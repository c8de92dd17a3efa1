"""SQL compilers for Citus. It refuses computed times beside columns in SET, unless a scalar subquery encloses them."""

from typing import Any

from django.db.backends.postgresql.compiler import SQLInsertCompiler
from django.db.models import F, Func, Value
from django.db.models.sql import compiler
from django.db.models.sql.compiler import SQLAggregateCompiler, SQLCompiler, SQLDeleteCompiler

__all__ = ["SQLAggregateCompiler", "SQLCompiler", "SQLDeleteCompiler", "SQLInsertCompiler", "SQLUpdateCompiler"]


class Enclosed(Func):
    """An expression as a scalar subquery, which the server computes the same."""

    template = "(SELECT %(expressions)s)"
    arity = 1


class SQLUpdateCompiler(compiler.SQLUpdateCompiler):
    """Encloses each computed value of SET."""

    def as_sql(self, *arguments: Any, **named: Any) -> Any:
        """Return the statement and its parameters."""
        query: Any = self.query
        query.values = [(field, model, _enclosed(field, value)) for field, model, value in query.values]
        return super().as_sql(*arguments, **named)


def _enclosed(field: Any, value: Any) -> Any:
    if not hasattr(value, "resolve_expression") or isinstance(value, Value | F | Enclosed):
        return value
    return Enclosed(value, output_field=field)
