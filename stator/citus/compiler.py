"""SQL compilers for Citus.

It refuses computed times beside columns in SET, unless a scalar subquery encloses them. It refuses a subquery that
refers to rows on several nodes, unless its own table is in a further subquery, which is then run first.
"""

from typing import Any

from django.db.backends.postgresql.compiler import SQLInsertCompiler
from django.db.models import F, Func, Subquery, Value
from django.db.models.sql import compiler
from django.db.models.sql.compiler import SQLAggregateCompiler, SQLDeleteCompiler

from stator.rows.nodes import READ_FIRST
from stator.statements import Statement, joined, written

__all__ = ["SQLAggregateCompiler", "SQLCompiler", "SQLDeleteCompiler", "SQLInsertCompiler", "SQLUpdateCompiler"]

# Without OFFSET, Citus would join a table that is distributed, too.
ENCLOSED = "(SELECT {columns} FROM {table} WHERE {conditions} OFFSET 0) {alias}"


class SQLCompiler(compiler.SQLCompiler):
    """Encloses the table of a query that is marked so, with its conditions that refer to no other query."""

    where: Any

    def get_from_clause(self) -> Any:
        """Return the tables of FROM, and the parameters of that clause."""
        query: Any = self.query
        if not (columns := getattr(query, READ_FIRST, ())):
            return super().get_from_clause()
        conditions = self.where
        own = [each for each in conditions.children if not self._refers_outside(each)]
        compiled = [Statement(sql, tuple(params)) for sql, params in map(self.compile, own)]
        met = joined(compiled or [Statement("TRUE")], " AND ")
        # Repeated outside, a further subquery among them would be refused.
        self.where = conditions.create([each for each in conditions.children if each not in own], conditions.connector)
        [table], _ = super().get_from_clause()
        names = ", ".join(map(self.connection.ops.quote_name, columns))
        enclosed = written(ENCLOSED, columns=names, table=table, conditions=met, alias=query.get_initial_alias())
        return [enclosed.text], list(enclosed.params)

    def _refers_outside(self, condition: Any) -> bool:
        query: Any = self.query
        found = query._gen_cols([condition], include_external=True)
        return any(column.alias in query.external_aliases for column in found)


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
    if not hasattr(value, "resolve_expression") or isinstance(value, Value | F | Subquery | Enclosed):
        return value
    return Enclosed(value, output_field=field)
