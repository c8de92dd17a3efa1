"""Bounded counts of rows of several kinds, and their ages: one statement that counts each kind up to a limit."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from django.db import connections
from django.db.models import DateTimeField, Expression, Model, Q, QuerySet, Value
from django.db.models.expressions import Case, Combinable, F, RawSQL, When

from stator.conf import load_settings
from stator.db import operations_for
from stator.db.interface import new_worker_id
from stator.db.sql import IN_ORDER
from stator.db.values import Params, Row
from stator.graph.durations import seconds_of
from stator.rows.clock import Elapsed, Now
from stator.rows.dates import due_since
from stator.rows.state_column import state_field
from stator.statements import selecting

# Rows of one kind, with the columns that are counted.
Kind: TypeAlias = QuerySet[Model, dict[str, object]]

# What counts the rows of each kind, as text and parameters. Times come from the database, so it can be cached.
Question: TypeAlias = tuple[tuple[str, Params], ...]

# The tallies of the rows of each kind, by the number of the kind.
Answer: TypeAlias = dict[int, list["Tally"]]

# Kinds in one statement; SQLite joins at most 500.
AT_ONCE = 400


@dataclass(frozen=True, slots=True)
class Tally:
    """The rows of one kind with one ``value`` of the column that they are counted by, mostly the state.

    ``late``: how many of them are late; ``flagged``: how many have the flag. ``oldest``: the longest time in seconds
    that one has been in its state; ``waited``: seconds since the first without the flag was due, None if all have it.
    """

    value: Any
    count: int
    oldest: float
    waited: float | None
    late: int
    flagged: int = 0


def question(using: str, kinds: Sequence[Kind], most: int) -> Question:
    """Return what to ask for the first ``most`` rows of each kind made by :func:`by_state` or :func:`in_all`.

    A kind that is a slice already keeps its limit.
    """
    return tuple(_part(using, kind if kind.query.is_sliced else kind[:most]) for kind in kinds)


def tally(using: str, *asked: Question) -> list[Answer]:
    """Return the answer to each question; one statement for all, or for each ``AT_ONCE`` kinds."""
    answers: list[Answer] = [defaultdict(list) for _ in asked]
    places = [(answer, kind) for answer, parts in zip(answers, asked, strict=True) for kind in range(len(parts))]
    parts = [part for each in asked for part in each]
    with connections[using].cursor() as cursor:
        for first in range(0, len(parts), AT_ONCE):
            some = parts[first : first + AT_ONCE]
            statement = " UNION ALL ".join(f"SELECT {n}, {sql}" for n, (sql, _) in enumerate(some, first))
            params = [each for _, params in some for each in params or ()]
            cursor.execute(statement, None if _composes(using) else params)
            for number, value, count, late, flagged, oldest, waited in cursor.fetchall():
                answer, kind = places[number]
                since = None if waited is None else seconds_of(waited)
                answer[kind].append(Tally(value, count, seconds_of(oldest), since, int(late), int(flagged)))
    return answers


def by_state(rows: QuerySet[Model], late: Q | None = None, flag: Q | None = None) -> Kind:
    """Return rows as a kind counted by state, by its name; ``late`` and ``flag`` say which are late and flagged."""
    since = due_since(rows.model)
    turn = Case(When(flag, then=None), default=since) if flag else since
    return _kind(rows, state_field(rows.model).named(), F("state_changed"), turn, _number(late), _number(flag))


def by_value(rows: QuerySet[Model], name: str) -> Kind:
    """Return rows as a kind counted by the value of a column."""
    return _kind(rows, F(name), F("state_changed"), Now(), Value(0), Value(0))


def in_all(rows: QuerySet[Model], flag: Q | None = None) -> Kind:
    """Return rows as a kind with totals only, which an index alone may answer."""
    return _kind(rows, Value(""), Now(), Now(), Value(0), _number(flag))


def in_order(model: type[Model], rows: QuerySet[Model]) -> list[Row]:
    """Return rows of numbers; for them, the server reads the rows of a managed model in the order of an index.

    A planner that expects few rows would read and sort all of them.
    """
    operations = operations_for(model, load_settings(), new_worker_id(), str(rows.db))
    statement = selecting(rows)
    return operations.fetch(statement.text, statement.params, IN_ORDER)


def _number(condition: Q | None) -> Combinable:
    return Case(When(condition, then=1), default=0) if condition else Value(0)


def _kind(
    rows: QuerySet[Model], state: Combinable, changed: Combinable, turn: Combinable, late: Combinable, flag: Combinable
) -> Kind:
    # No field of a model has these names.
    return rows.values(stator_state=state, stator_changed=changed, stator_turn=turn, stator_late=late, stator_flag=flag)


def _part(using: str, rows: Kind) -> tuple[str, Params]:
    compiler = rows.query.get_compiler(using=using, elide_empty=False)
    asked = [compiler.compile(_since(column)) for column in ("stator_changed", "stator_turn")]
    sums = ("stator_state", "COUNT(*)", "SUM(stator_late)", "SUM(stator_flag)")
    columns = ", ".join([*sums, *(column for column, _ in asked)])
    sql, params = compiler.as_sql()
    text = f"{columns} FROM ({sql}) stator_rows GROUP BY stator_state"
    given = (*(each for _, some in asked for each in some), *params)
    # psycopg searches a text as long as this for its parameters each time that it is sent. Only its backend has this.
    compose = _composes(using)
    return (compose(text, given), ()) if compose else (text, given)


def _composes(using: str) -> Any:
    return getattr(connections[using].ops, "compose_sql", None)


def _since(column: str) -> Expression:
    """Return how long ago the earliest time in the column was, by the clock of the database."""
    return Elapsed(RawSQL(f"MIN({column})", (), DateTimeField()))
