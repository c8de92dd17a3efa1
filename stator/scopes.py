"""Scopes: where the rows of a store are. An ordinary site has one for each of its databases.

Whatever divides the rows of a site makes scopes of its own: ``stator/schemas.py`` gives them a path, slices a
condition, and Citus a node. Stores, workers and statements know scopes alone.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db.models import F, Model, Q, QuerySet

M = TypeVar("M", bound=Model)

# The path of the scope that the code of this context has entered.
PATH: ContextVar[str] = ContextVar("stator_path", default="")
UNCHANGED: AbstractContextManager[None] = nullcontext()
EVERYTHING = Q()


@dataclass(slots=True)
class Paths:
    """What paths are; whatever gives scopes a path says so.

    ``enter``: return a context with a path in it. ``chosen``: return the path that something else than a scope has
    chosen for a connection. ``fields``: return a path as fields of a log event.
    """

    enter: Callable[[str], AbstractContextManager[None]] = lambda path: UNCHANGED
    chosen: Callable[[Any], str] = lambda connection: ""
    fields: Callable[[str], Mapping[str, str]] = lambda path: {}


PATHS = Paths()


@dataclass(slots=True)
class Tables:
    """What divides tables says so.

    ``divided_by``: return the name of the field by which the table of a model is divided, "" if it is whole.
    ``apart_by``: return the name of the field by which it is divided over several servers, "" if it is not.
    """

    divided_by: Callable[[type[Model], str], str] = lambda model, using: ""
    apart_by: Callable[[type[Model], str], str] = lambda model, using: ""


TABLES = Tables()


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


def entering(path: str) -> AbstractContextManager[None]:
    """Return a context with a path in it; nothing changes for an empty one."""
    return PATHS.enter(path) if path else UNCHANGED


def entered() -> str:
    """Return the path of the scope that this context has entered; "" outside of any."""
    return PATH.get()


def path_in_use(connection: Any) -> str:
    """Return the path that this context has entered, or that something else has chosen for the connection."""
    return PATH.get() or PATHS.chosen(connection)
