"""Lists of rows in the admin: a paginator and filters that stay fast on tables of any size."""

from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.functional import cached_property

from stator.querysets import OperatorQuerySet

# Counting all of a table of millions would take longer than anybody waits for a page.
COUNTED = 10_000


class AtLeast(int):
    """A count that ended at a limit; prints so."""

    def __str__(self) -> str:
        return f"more than {int(self):,}"


def bounded_count(rows: Any) -> int:
    """How many rows there are, counted no further than ``COUNTED``."""
    found = rows.order_by()[: COUNTED + 1].count()
    return AtLeast(COUNTED) if found > COUNTED else found


class BoundedPaginator(Paginator):
    """Pages over the first rows of a queryset; what comes after them is found by filters."""

    @cached_property
    def count(self) -> int:
        """How many rows the pages show."""
        return bounded_count(self.object_list)


def operated(queryset: Any) -> OperatorQuerySet:
    """The same rows as a queryset for operators."""
    rows = OperatorQuerySet(queryset.model, using=queryset._db)
    return rows.filter(pk__in=queryset.order_by().values("pk"))


CONDITIONS: dict[str, tuple[str, Callable[[OperatorQuerySet], OperatorQuerySet]]] = {
    "ready": ("ready", OperatorQuerySet.ready),
    "leased": ("leased", OperatorQuerySet.leased),
    "failing": ("failing", OperatorQuerySet.failed),
    "quarantined": ("quarantined", OperatorQuerySet.quarantined),
    "stuck": ("stuck", OperatorQuerySet.stuck),
    "overdue": ("overdue", OperatorQuerySet.overdue),
    "unknown": ("in an unknown state", OperatorQuerySet.unknown),
}


class ConditionFilter(admin.SimpleListFilter):
    """Rows by what an operator looks for."""

    title = "condition"
    parameter_name = "condition"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """The conditions there are."""
        return [(name, title) for name, (title, _) in CONDITIONS.items()]

    def queryset(self, request: HttpRequest, queryset: Any) -> QuerySet[Any]:
        """The rows in the chosen condition."""
        condition = CONDITIONS.get(self.value() or "")
        if condition is None:
            return queryset
        rows = condition[1](OperatorQuerySet(queryset.model, using=queryset._db))
        return queryset.filter(pk__in=rows.order_by().values("pk"))
