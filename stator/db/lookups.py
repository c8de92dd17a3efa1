"""Lookups: the first row of each of several querysets, read with one statement that is compiled once."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from django.db import InterfaceError, OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model, QuerySet

from stator.db.kept_statements import inlined, sessions
from stator.db.values import Params, Row
from stator.rows.keys import key_fields
from stator.statements import Statement, StatementCache, fetch_all, selecting


@dataclass(frozen=True, slots=True)
class SelectedColumns:
    """The columns that one queryset selects.

    ``fields``: the number of fields, which come first.
    ``annotated``: the position of each annotation.
    ``converters``: by position, the expression and the converters of its values.
    ``pk``: the position of the key.
    """

    model: type[Model]
    names: tuple[str, ...]
    annotated: Mapping[str, int]
    converters: Mapping[int, tuple[Sequence[Callable[..., object]], object]]
    pk: int
    width: int

    @classmethod
    def of(cls, rows: QuerySet[Model]) -> "SelectedColumns":
        """Return the part of a queryset with all fields of its model, and annotations."""
        compiler = rows.query.get_compiler(using=rows.db, elide_empty=False)
        compiler.setup_query()
        selected = [expression for expression, _, _ in compiler.select]
        names = tuple(field.attname for field in rows.model._meta.concrete_fields)
        return cls(
            rows.model,
            names,
            dict(compiler.annotation_col_map or {}),
            compiler.get_converters(selected),
            names.index(key_fields(rows.model)[0].attname),
            len(selected),
        )

    def instance(self, connection: BaseDatabaseWrapper, row: Row) -> Model | None:
        """Return the instance of a row; None if there is none."""
        if row[self.pk] is None:
            return None
        values = list(row)
        for at, (converters, expression) in self.converters.items():
            for convert in converters:
                values[at] = convert(values[at], expression, connection)
        made: Model = self.model.from_db(connection.alias, self.names, values[: len(self.names)])
        for name, at in self.annotated.items():
            setattr(made, name, values[at])
        return made


@dataclass(frozen=True, slots=True)
class Lookup:
    """A statement, and the parts of its rows."""

    statement: Statement
    parts: Sequence[SelectedColumns]

    @classmethod
    def of(cls, querysets: Sequence[QuerySet[Model]], connection: BaseDatabaseWrapper) -> "Lookup":
        """Return the lookup of querysets in one database."""
        firsts = [rows.order_by()[:1] for rows in querysets]
        joined: list[str | Statement] = ["SELECT * FROM (SELECT 1 AS stator_one) stator_base"]
        for number, rows in enumerate(firsts):
            joined += [" LEFT JOIN (", selecting(rows), f") stator_{number} ON 1 = 1"]
        statement = Statement.of(*joined)
        if connection.vendor == "postgresql":
            statement = inlined(connection, statement)
        return cls(statement, [SelectedColumns.of(rows) for rows in firsts])


_cache: StatementCache[Lookup] = StatementCache()


def first_of_each(
    alias: str, key: Hashable, build: Callable[[], Sequence[QuerySet[Model]]], values: Mapping[str, object]
) -> list[Model | None]:
    """Return the first instance of each queryset that ``build`` returns, or None.

    ``key``: equal for equal querysets. They may have annotations, but neither ``select_related`` nor ``only``. In a
    session of PostgreSQL the statement is also planned once.
    """
    connection = connections[alias]
    lookup = _cache.get((alias, key), lambda: Lookup.of(build(), connection))
    [row] = _fetch(connection, lookup.statement.text, lookup.statement.bind(connection, values))
    firsts: list[Model | None] = []
    start = 1
    for part in lookup.parts:
        firsts.append(part.instance(connection, row[start : start + part.width]))
        start += part.width
    return firsts


def _fetch(connection: BaseDatabaseWrapper, statement: str, params: Params) -> list[Row]:
    if connection.vendor == "postgresql":
        # This statement checks a connection that was kept, so Django need not send one for it in this request.
        connection.health_check_done = True  # type: ignore[attr-defined]
        send: Callable[..., list[Row]] = sessions().send_in_passing
        try:
            return send(connection, statement, params)
        except (OperationalError, InterfaceError):
            # The server may have closed it meanwhile.
            if connection.in_atomic_block or connection.is_usable():
                raise
            connection.close()
            return send(connection, statement, params)
    return fetch_all(connection, statement, params)
