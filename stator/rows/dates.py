"""Dates that columns of a model give its rows: deadlines, which end the stay in a state, and starts of attempts.

A date is read where it is and copied nowhere, so that workers heed whoever writes it, also by SQL.
"""

from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import and_, or_
from typing import Any

from django.core.exceptions import FieldDoesNotExist, FieldError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import (
    Case,
    DateTimeField,
    DurationField,
    Expression,
    F,
    Field,
    Func,
    GeneratedField,
    Model,
    Q,
    QuerySet,
    Subquery,
    Value,
    When,
)
from django.db.models.expressions import BaseExpression, Col, DurationExpression, Exists
from django.db.models.functions import (
    Coalesce,
    Greatest,
    Now,  # noqa: TID251 - as a project may have written it
    Random,
)
from django.db.models.lookups import GreaterThan, IsNull, LessThanOrEqual
from django.db.models.sql import Query
from django.db.models.sql.compiler import SQLCompiler

from stator.graph.dates import date_text
from stator.graph.graphs import StateGraph
from stator.graph.states import State
from stator.rows.beginning import FRAMEWORK_COLUMNS
from stator.rows.left import of_graph
from stator.rows.meta import graph_of, owner_of
from stator.rows.state_column import state_field
from stator.texts import bounded, nearest

# What an expression of dates raises that names or combines what it cannot.
WRONG = (AttributeError, FieldDoesNotExist, FieldError, TypeError, ValueError)


@dataclass(frozen=True, eq=False)
class RowDate:
    """A date of the rows in a state: ``date`` is a ``F`` for a column, else an expression; ``source`` is for people."""

    state: State
    date: F | Expression
    source: str

    @property
    def column(self) -> str:
        """The name of the field if the date is one; "" if it is computed."""
        return str(getattr(self.date, "name", "")) if isinstance(self.date, F) else ""

    def met(self, moment: object) -> LessThanOrEqual:
        """Return the condition that the date is not after a moment."""
        return LessThanOrEqual(self.date, moment)

    def ahead(self, moment: object) -> GreaterThan:
        """Return the condition that the date is after a moment."""
        return GreaterThan(self.date, moment)


@dataclass(frozen=True, eq=False)
class Deadline(RowDate):
    """A timeout by a date of the row."""

    to: State

    @property
    def reason(self) -> str:
        """What the history says of its moves."""
        return bounded(f"timed out by {self.source}", 100)


@dataclass(frozen=True, eq=False)
class Start(RowDate):
    """A date before which a row is not attempted; null is at once.

    While it decides when a row is attempted next, ``state_next_attempt`` is null.
    """

    @property
    def missing(self) -> IsNull:
        """The condition that there is no date."""
        return IsNull(self.date, True)

    def come(self, moment: object) -> Q:
        """Return the condition that the date is not after a moment, or that there is none."""
        return Q(self.met(moment)) | Q(self.missing)


@of_graph
def deadlines_of(model: type[Model]) -> tuple[Deadline, ...]:
    """Return the deadlines of a managed model; without those that are declared wrongly, which a check tells of."""
    return deadlines_in(model, graph_of(model))


def deadlines_in(model: type[Model], graph: type[StateGraph]) -> tuple[Deadline, ...]:
    """Return :func:`deadlines_of` a graph that the model may have."""
    return tuple(
        Deadline(state, _date(state.timeout_at), date_text(state.timeout_at), state.timeout_state)
        for state in graph.states.values()
        if state.timeout_state and state.timeout_at is not None and not problem_of(model, state.timeout_at)
    )


def deadline_of(model: type[Model], state: State | None) -> Deadline | None:
    """Return the deadline of a state; None if it has none."""
    return next((each for each in deadlines_of(model) if each.state is state), None)


@of_graph
def starts_of(model: type[Model]) -> tuple[Start, ...]:
    """Return the dates before which rows of a managed model are not attempted; without those declared wrongly."""
    return tuple(
        Start(state, _date(state.try_at), date_text(state.try_at))
        for state in graph_of(model).states.values()
        if state.try_at is not None and not problem_of(model, state.try_at)
    )


def start_of(model: type[Model], state: State | None) -> Start | None:
    """Return the date before which rows in a state are not attempted; None if there is none."""
    return next((each for each in starts_of(model) if each.state is state), None)


def not_yet(model: type[Model], moment: object) -> Q:
    """Return a filter for the rows that are in a state with a start, which comes after a moment; empty without any."""
    field = state_field(model)
    return reduce(or_, (Q(each.ahead(moment), **field.at(each.state)) for each in starts_of(model)), Q())


def come(model: type[Model], moment: object) -> Q:
    """Return a filter for the rows that are not among those of :func:`not_yet`; empty if none are."""
    field = state_field(model)
    parts = (~Q(**field.at(each.state)) | each.come(moment) for each in starts_of(model))
    return reduce(and_, parts, Q())


def due_since(model: type[Model]) -> Coalesce:
    """Return since when rows that are not ready are due, or will be: also by a date of theirs."""
    field, entered = state_field(model), F("state_changed")
    dated = [
        When(~Q(each.missing), **field.at(each.state), then=Greatest(each.date, entered)) for each in starts_of(model)
    ]
    by_date = [Case(*dated, default=None, output_field=DateTimeField())] if dated else []
    return Coalesce(F("state_next_attempt"), *by_date, entered)


def moment_by(model: type[Model], dates: Iterable[RowDate]) -> Expression:
    """Return an expression for the one of these dates that a row has, by its state; null for none."""
    field = state_field(model)
    cases = [When(**field.at(each.state), then=each.date) for each in dates]
    return Case(*cases, default=None, output_field=DateTimeField()) if cases else Value(None, DateTimeField())


def moment_of(row: Model, date: RowDate) -> datetime | None:
    """Return a date of a row: as it was loaded if it is a column, else by a statement."""
    if date.column:
        moment: datetime | None = getattr(row, date.column)
        return moment
    model = owner_of(type(row))
    rows: QuerySet[Model] = QuerySet(model, using=row._state.db).filter(pk=row.pk)
    return rows.values_list(date.date, flat=True).first()


def wrong_dates(model: type[Model]) -> Iterator[str]:
    """Yield what is wrong with each date that the graph of a model names, as one line."""
    graph = graph_of(model)
    for state in graph.states.values():
        if state.timeout_at is not None and (problem := problem_of(model, state.timeout_at)):
            where = f"{graph.__name__}.{state.name}.times_out_to({state.timeout_state}, at=...)"
            yield f"{where}: {problem}"
        if state.try_at is not None and (problem := problem_of(model, state.try_at)):
            yield f"{graph.__name__}.{state.name}: try_at: {problem}"


def columns_of_dates(model: type[Model]) -> list[str]:
    """Return the names of the model's fields of date and time from which its dates are computed."""
    query = Query(model)
    dates = [each.date.resolve_expression(query) for each in (*deadlines_of(model), *starts_of(model))]
    fields = [part.target for date in dates for part in _parts(date) if isinstance(part, Col)]
    own = (field for field in fields if isinstance(field, DateTimeField) and not isinstance(field, GeneratedField))
    return list(dict.fromkeys(field.name for field in own))


def problem_of(model: type[Model], date: object) -> str:
    """Return why a date cannot be one of a model's rows; "" if it can."""
    return _problem_of_name(model, date) if isinstance(date, str) else _problem_of_expression(model, date)


def _problem_of_name(model: type[Model], name: str) -> str:
    own = {field.name: field for field in model._meta.concrete_fields if field.name not in FRAMEWORK_COLUMNS}
    if (field := own.get(name)) is None:
        return f"{model.__name__} has no field {name!r}; {nearest(name, own)}"
    if field.model is not state_field(model).model:
        return f"{name!r} is in the table of {field.model.__name__}; it must be in the table with the state"
    return _problem_of_kind(repr(name), getattr(field, "output_field", field))


def _problem_of_kind(what: str, field: Field) -> str:
    if isinstance(field, DateTimeField):
        return ""
    return f"{what} is a {type(field).__name__}; it must be a DateTimeField, which has a time of day"


def _problem_of_expression(model: type[Model], date: Any) -> str:
    try:
        resolved = date.resolve_expression(Query(model), allow_joins=False)
        kind = resolved.output_field
    except WRONG as error:
        return f"{bounded(str(error), 300).rstrip('.')}; give columns of {model.__name__} alone"
    if any(isinstance(part, Now | Random | Subquery | Exists) for part in _parts(resolved)):
        return "no index can have the present time, chance or other rows; give columns of the row alone"
    return _problem_of_kind(date_text(date), kind)


def _parts(expression: object) -> list[Any]:
    return list(expression.flatten()) if hasattr(expression, "flatten") else [expression]


def _date(date: object) -> F | Expression:
    if isinstance(date, str):
        return F(date)
    return date if isinstance(date, F) else Moment(date)


class Moment(Func):
    """A date that is computed, so that an index can have it.

    On PostgreSQL, a time plus an interval depends on the zone of the session, for the length of a day. Here a day has
    24 hours, as it has in Python.
    """

    template = "%(expressions)s"
    arity = 1
    output_field = DateTimeField()

    def as_postgresql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: object
    ) -> tuple[str, tuple[object, ...]]:
        """Compile so that each sum of a time and an interval is one in UTC."""
        return _in_utc(self).as_sql(compiler, connection, **context)

    def as_sqlite(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper, **context: Any
    ) -> tuple[str, tuple[str | int, ...]]:
        """Compile with the values in the text: SQLite compares expressions of an index with those of a statement so."""
        sql, params = self.as_sql(compiler, connection, **context)
        quote = connection.SchemaEditorClass(connection, collect_sql=True).quote_value
        return (sql % tuple(map(quote, params))).replace("%", "%%"), ()


class _InUtc(Func):
    template = "timezone('UTC', timezone('UTC', %(expressions)s))"
    output_field = DateTimeField()


def _in_utc(expression: object) -> Any:
    if not isinstance(expression, BaseExpression):
        return expression
    parts = [_in_utc(part) for part in expression.get_source_expressions()]
    made = copy(expression)
    made.set_source_expressions(parts)
    if not isinstance(made, DurationExpression) or not isinstance(made.output_field, DateTimeField):
        return made
    ends = sorted(parts, key=lambda part: isinstance(part.output_field, DurationField))
    return _InUtc(*ends, arg_joiner=f") {made.connector} (")
