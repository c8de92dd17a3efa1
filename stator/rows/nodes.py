"""Tables that Citus has distributed over its nodes: which they are, and queries in parts or in a form that it plans."""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from django.db import connections
from django.db.models import F, Model, QuerySet

from stator.capabilities import capabilities_of
from stator.rows.meta import options_of

M = TypeVar("M", bound=Model)

# The attribute of a query with the columns that are read first; the compiler for Citus knows it.
READ_FIRST = "stator_read_first"


def over_nodes(model: type[Model], using: str) -> bool:
    """Return whether the rows of a managed model are on several nodes."""
    return bool(options_of(model).spread) and capabilities_of(connections[using]).has_nodes


def of_one_node(rows: QuerySet[M]) -> Iterator[QuerySet[M]]:
    """Yield rows in parts, each of one node: several nodes do not lock rows by one statement."""
    if over_nodes(rows.model, rows.db):
        spread = str(options_of(rows.model).spread)
        for value in list(rows.order_by(F(spread)).values_list(spread, flat=True).distinct()):
            yield rows.filter(**{spread: value})
    else:
        yield rows


def read_first(rows: QuerySet[Any], columns: Iterable[str]) -> QuerySet[Any]:
    """Return a subquery that refers to rows on several nodes, with its conditions on its own ``columns`` met before.

    Citus joins a table on several nodes with no other one by such a reference.
    """
    marked = rows.all()
    names = dict.fromkeys(str(rows.model._meta.get_field(name).column) for name in columns)
    setattr(marked.query, READ_FIRST, tuple(names))
    return marked
