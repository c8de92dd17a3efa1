"""SQL compilers for Citus.

It refuses computed times beside columns in SET, unless a scalar subquery encloses them. It refuses a subquery that
refers to rows on several nodes, unless its own table is in a further subquery, which is then run first; or unless the
rows are of one slice, and the statement says so of each table.
"""

from collections.abc import Sequence
from typing import Any

from django.db.backends.postgresql.compiler import SQLInsertCompiler
from django.db.models import F, Field, Func, Subquery, Value
from django.db.models.expressions import Col
from django.db.models.lookups import Exact
from django.db.models.sql import Query, compiler
from django.db.models.sql.compiler import SQLAggregateCompiler
from django.db.models.sql.where import WhereNode

from stator.extensions.slices.nodes import columns_of_slices
from stator.scopes import READ_FIRST
from stator.statements import Statement, joined, written

__all__ = ["SQLAggregateCompiler", "SQLCompiler", "SQLDeleteCompiler", "SQLInsertCompiler", "SQLUpdateCompiler"]

# Without OFFSET, Citus would join a table that is distributed, too.
ENCLOSED = "(SELECT {columns} FROM {table} WHERE {conditions} OFFSET 0) {alias}"


# The attribute of a connection with the value of ``spread`` of the query that is compiled.
SLICE = "stator_slice"


class OfSlice(compiler.SQLCompiler):
    """Compiles queries whose tables are beside each other: each is read for the slice of the query around it."""

    # The condition that says so of the first table.
    of_slice: Any = None

    def as_sql(self, *arguments: Any, **named: Any) -> Any:
        """Return the statement and its parameters."""
        around = getattr(self.connection, SLICE, None)
        setattr(self.connection, SLICE, self._slice(around))
        try:
            return super().as_sql(*arguments, **named)
        finally:
            setattr(self.connection, SLICE, around)

    def _slice(self, around: object) -> Col | Value | None:
        """Return the value of ``spread`` that the rows have, as an expression, or None; ``around``: of outer rows."""
        query = self.query
        fixed = around if isinstance(around, Value) else None
        # The first ones of a subquery may have been trimmed.
        used = [alias for alias in query.alias_map if query.alias_refcount[alias]]
        if not (column := _column(query, used[0] if used else query.get_initial_alias())):
            return fixed
        for each in query.where.children:
            if isinstance(each, Exact) and _is_same(each.lhs, column) and not isinstance(each.rhs, Col):
                return each.rhs if isinstance(each.rhs, Value) else Value(each.rhs, column.target)
        if around is None or not _refers_outside(query, [query.where]):
            return column
        self.of_slice = Exact(column, around)
        return fixed or column


def _column(query: Query, alias: str) -> Col | None:
    """Return the column of ``spread`` of a table that is beside others; else None, also of a query without tables."""
    table = query.alias_map.get(alias)
    field = columns_of_slices().get(table.table_name) if table else None
    return field.get_col(alias) if field else None


def _is_same(other: object, column: Col) -> bool:
    """Return whether an expression is this column; columns of a query within two others do not compare as equal."""
    return isinstance(other, Col) and (other.alias, other.target) == (column.alias, column.target)


def _refers_outside(query: Any, conditions: list[Any]) -> bool:
    columns = query._gen_cols(conditions, include_external=True)
    return any(column.alias in query.external_aliases for column in columns)


class SQLCompiler(OfSlice):
    """Encloses the table of a query that is marked so, with its conditions that refer to no other query."""

    where: Any

    def get_from_clause(self) -> Any:
        """Return the tables of FROM, and the parameters of that clause."""
        query = self.query
        if not (columns := getattr(query, READ_FIRST, ())):
            return self._beside(*super().get_from_clause())
        conditions = self.where
        own = [each for each in conditions.children if not _refers_outside(query, [each])]
        compiled = [Statement(sql, tuple(params)) for sql, params in map(self.compile, own)]
        met = joined(compiled or [Statement("TRUE")], " AND ")
        # Repeated outside, a further subquery among them would be refused.
        self.where = conditions.create([each for each in conditions.children if each not in own], conditions.connector)
        [table], _ = super().get_from_clause()
        names = ", ".join(map(self.connection.ops.quote_name, columns))
        enclosed = written(ENCLOSED, columns=names, table=table, conditions=met, alias=query.get_initial_alias())
        return [enclosed.text], list(enclosed.params)

    def _beside(self, tables: list[str], params: Sequence[object]) -> tuple[list[str], Sequence[object]]:
        """Return the tables of FROM, joined within the slice, and their parameters."""
        query = self.query
        if self.of_slice:
            self.where = WhereNode([self.of_slice, *([self.where] if self.where else [])])
        for place, alias in enumerate(each for each in query.alias_map if query.alias_refcount[each]):
            parent = getattr(query.alias_map[alias], "parent_alias", None)
            if parent and (own := _column(query, alias)) and (other := _column(query, parent)):
                condition, _ = self.compile(Exact(own, other))
                tables[place] = f"{tables[place][:-1]} AND {condition})"
        return tables, params


class Enclosed(Func):
    """An expression as a scalar subquery, which the server computes the same."""

    template = "(SELECT %(expressions)s)"
    arity = 1


class SQLDeleteCompiler(OfSlice, compiler.SQLDeleteCompiler):
    """Deletes rows of a slice."""


class SQLUpdateCompiler(OfSlice, compiler.SQLUpdateCompiler):
    """Encloses each computed value of SET; a condition needs that nowhere."""

    def as_sql(self, *arguments: object, **named: object) -> Any:
        """Return the statement and its parameters."""
        query: Any = self.query
        query.values = [(field, model, _enclosed(field, value)) for field, model, value in query.values]
        return super().as_sql(*arguments, **named)


def _enclosed(field: Field, value: object) -> object:
    if not hasattr(value, "resolve_expression") or isinstance(value, Value | F | Subquery | Enclosed | WhereNode):
        return value
    return Enclosed(value, output_field=field)
