"""Scopes: where the rows of a store are. An ordinary site has one for each of its databases.

Whatever divides the rows of a site makes scopes of its own: schemas of PostgreSQL give them a path, slices a
condition, and Citus a node. Stores, workers and statements know scopes alone.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeVar

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import F, Model, Q, QuerySet

from stator.conf import GivenNames

M = TypeVar("M", bound=Model)

# The path of the scope that the code of this context has entered.
PATH: ContextVar[str] = ContextVar("stator_path", default="")
UNCHANGED: AbstractContextManager[None] = nullcontext()
EVERYTHING = Q()
# The attribute of a query with the columns that are read first; the compiler of such a server knows it.
READ_FIRST = "stator_read_first"


class TablePart(Protocol):
    """A part of a table by time; None is without end."""

    @property
    def lower(self) -> datetime | None: ...
    @property
    def upper(self) -> datetime | None: ...


# Returns whether a part of a table may be dropped.
MayEnd = Callable[[TablePart], bool]


@dataclass(slots=True)
class Paths:
    """What paths are; whatever gives scopes a path says so.

    ``enter``: return a context with a path in it. ``chosen``: return the path that something else than a scope has
    chosen for a connection. ``fields``: return a path as fields of a log event. ``exists``: return whether a database
    has a path, given its alias. ``named``: return a path for messages. ``finds``: return whether a statement is one by
    which the backend of a connection finds a path. ``served``: return the scopes with paths that a worker of models
    serves on a database, or on each, and pages look into; those that were chosen, or by the settings if that is None.
    The answer is a :class:`~stator.worker.serving.Served`, or None without such scopes.
    """

    enter: Callable[[str], AbstractContextManager[None]] = lambda path: UNCHANGED
    chosen: Callable[[BaseDatabaseWrapper], str] = lambda connection: ""
    fields: Callable[[str], Mapping[str, str]] = lambda path: {}
    exists: Callable[[str, str], bool] = lambda path, alias: False
    named: Callable[[str], str] = repr
    finds: Callable[[BaseDatabaseWrapper, str], bool] = lambda connection, text: False
    served: Callable[[Sequence[type[Model]], str | None, GivenNames | None], Any] = lambda models, alias, chosen: None


PATHS = Paths()


@dataclass(slots=True)
class TableDivision:
    """What divides tables says so.

    ``divided_by``: return the name of the field by which the table of a model is divided, "" if it is whole.
    ``apart_by``: return the name of the field by which it is divided over several servers, "" if it is not.
    ``ends_in_parts``: return whether the table of a model of ours is divided by time, so that whole parts end.
    ``keep_up``: make the parts of the time to come of such a table, and drop the parts that ended longer ago than so
    many seconds, but those that the function refuses; return how many changed.
    """

    divided_by: Callable[[type[Model], str], str] = lambda model, using: ""
    apart_by: Callable[[type[Model], str], str] = lambda model, using: ""
    ends_in_parts: Callable[[type[Model], str], bool] = lambda model, using: False
    keep_up: Callable[[type[Model], str, float, MayEnd], int] = lambda model, using, age, may_end: 0


# Functions of apps that keep up the tables of theirs in a database, and return how many parts changed.
KEPT_UP: list[Callable[[str], int]] = []
TABLES = TableDivision()


@dataclass(frozen=True, slots=True)
class Scope:
    """A database, the path on which its tables are found, which of their rows, and the node that has these.

    ``path``: "" for the path of the connection. ``where``: a condition on the rows. ``node``: what tells the nodes
    apart; None if there is one.
    """

    alias: str
    path: str = ""
    where: Q = EVERYTHING
    node: object = None

    def __lt__(self, other: "Scope") -> bool:
        return (self.alias, self.path) < (other.alias, other.path)

    @property
    def of_all(self) -> "Scope":
        """The scope with all rows of the tables."""
        return self if self.where is EVERYTHING else Scope(self.alias, self.path)

    def enter(self) -> AbstractContextManager[None]:
        """Return a context where statements find the rows, and handlers find everything that belongs to the rows."""
        return entering(self.path)

    def fields(self) -> dict[str, str]:
        """Return the scope as fields of a log event."""
        return {"database": self.alias, **PATHS.fields(self.path)}


def are_apart(model: type[Model], using: str) -> bool:
    """Return whether rows of a model are in parts, of which one statement joins or locks only one."""
    return bool(TABLES.apart_by(model, using))


def in_parts(rows: QuerySet[M]) -> Iterator[QuerySet[M]]:
    """Yield rows in parts that one statement locks; all of them, if they are not apart."""
    column = TABLES.apart_by(rows.model, rows.db)
    if not column:
        yield rows
        return
    for value in list(rows.order_by(F(column)).values_list(column, flat=True).distinct()):
        yield rows.filter(**{column: value})


def read_first(rows: QuerySet[M], columns: Iterable[str]) -> QuerySet[M]:
    """Return a subquery that refers to rows in several parts, with its conditions on its own ``columns`` met before.

    A server that has the parts on several nodes joins them with no other table by such a reference.
    """
    marked = rows.all()
    own = {name: field.column for field in rows.model._meta.concrete_fields for name in (field.name, field.attname)}
    setattr(marked.query, READ_FIRST, tuple(dict.fromkeys(own[name] for name in columns)))
    return marked


def ends_in_parts(model: type[Model], using: str) -> bool:
    """Return whether rows of a table of ours are not deleted one by one: they end with their part of the table."""
    return TABLES.ends_in_parts(model, using)


def keep_up(model: type[Model], using: str, age: float, may_end: MayEnd = lambda part: True) -> int:
    """Make the parts of the time to come of a table, drop those that ended ``age`` seconds ago; return how many."""
    return TABLES.keep_up(model, using, age, may_end)


def entering(path: str) -> AbstractContextManager[None]:
    """Return a context with a path in it; nothing changes for an empty one."""
    return PATHS.enter(path) if path else UNCHANGED


def entered() -> str:
    """Return the path of the scope that this context has entered; "" outside of any."""
    return PATH.get()


def named(alias: str) -> str:
    """Return a database, and the path of this context in it, for messages."""
    path = PATH.get()
    return f"{PATHS.named(path)} of database {alias!r}" if path else f"database {alias!r}"


def path_in_use(connection: BaseDatabaseWrapper) -> str:
    """Return the path that this context has entered, or that something else has chosen for the connection."""
    return PATH.get() or PATHS.chosen(connection)
