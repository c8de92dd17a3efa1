"""The list filter for conditions that operators look for, fast even if few of millions of rows match."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db import router
from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest

from stator.admin.listing import COUNTED
from stator.models import StatorModel
from stator.querysets import OperatorQuerySet
from stator.rows.claimable import RESTING
from stator.rows.meta import M, graph_of, owner_of
from stator.rows.readings import read
from stator.rows.state_column import UNMANAGED, StateField, state_field
from stator.survey.conditions import CONDITIONS

# What extensions add: the filters of a model's list.
FURTHER: list[Callable[[type[StatorModel]], Iterable[type[admin.SimpleListFilter]]]] = []

# Up to this many matching rows are listed by key; statements with more keys take longer than they save.
FEW = 2000

# True for every row. Added to a filter by state, it lets a database find few rows by the partial indexes.
SOMEWHERE = Q(state_ready=True) | RESTING | Q(state_claim__isnull=False)


class StateFilter(admin.ChoicesFieldListFilter):
    """Rows in one state, or without one if the column may be null; fast even if they are few of millions."""

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        """Yield all rows, the states, and rows without one."""
        yield from super().choices(changelist)
        if self.field.null:
            without = changelist.get_query_string({self.lookup_kwarg_isnull: "True"}, [self.lookup_kwarg])
            yield {
                "selected": bool(self.lookup_val_isnull), "query_string": without, "display": UNMANAGED.capitalize(),
            }  # fmt: skip

    def queryset(self, request: HttpRequest, queryset: QuerySet[Model]) -> QuerySet[Model] | None:
        """Return the rows in the chosen state."""
        rows = super().queryset(request, queryset)
        if rows is None or self.lookup_val is None or self.field_path != _column_of(queryset.model):
            return rows
        return rows.filter(SOMEWHERE)


def _column_of(model: type[Model]) -> str | None:
    return state_field(model).name if hasattr(model, "_state_field") else None


admin.FieldListFilter.register(lambda field: isinstance(field, StateField), StateFilter, take_priority=True)


class ConditionFilter(admin.SimpleListFilter):
    """Rows in a condition that operators look for."""

    title = "condition"
    parameter_name = "condition"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin) -> list[tuple[str, str]]:
        """Return the available conditions."""
        expects = any(state.expect_within for state in graph_of(model_admin.model).states.values())
        return [(name, title) for name, (title, *_) in CONDITIONS.items() if expects or name != "stuck"]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Model]) -> QuerySet[Model]:
        """Return the rows in the chosen condition; for an action, the condition is evaluated when the action runs."""
        if self.value() not in CONDITIONS:
            return queryset
        _, meant, parts = CONDITIONS[str(self.value())]
        rows: OperatorQuerySet[Model] = OperatorQuerySet(queryset.model, using=getattr(queryset, "_db", None))
        return among(queryset, meant(rows), parts(rows) if parts else None, shown=request.method in ("GET", "HEAD"))


class ErrorFilter(admin.SimpleListFilter):
    """Rows that fail with one error, by its fingerprint; links lead to it, and it offers no other."""

    title = "error"
    parameter_name = "error"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin) -> list[tuple[str, str]]:
        """Return the chosen error."""
        chosen = request.GET.get(self.parameter_name, "")
        return [(chosen, "all with this error")] if chosen else []

    def failing(self, rows: OperatorQuerySet[Model]) -> QuerySet[Model]:
        """Return the rows among which the error is searched. Indexes ``st_fail`` and ``st_crash``."""
        return rows.failed()

    def queryset(self, request: HttpRequest, queryset: QuerySet[Model]) -> QuerySet[Model]:
        """Return the rows with the chosen error; a list searches the first ``COUNTED`` failing rows."""
        if not (chosen := self.value()):
            return queryset
        using = getattr(queryset, "_db", None) or router.db_for_read(queryset.model)
        candidates = self.failing(OperatorQuerySet(queryset.model, using=using)).order_by()
        reported = read("fingerprint", using, owner_of(queryset.model), otherwise=None)
        if reported is None:
            return queryset.none()
        if request.method not in ("GET", "HEAD"):
            return queryset.filter(pk__in=candidates.alias(stator_error=reported).filter(stator_error=chosen))
        failing = candidates.values_list("pk", reported)[:COUNTED]
        return queryset.filter(pk__in=[pk for pk, fingerprint in failing if fingerprint == chosen])


def among(
    queryset: QuerySet[M], rows: QuerySet[Model], parts: Iterable[QuerySet[Model]] | None = None, *, shown: bool
) -> QuerySet[M]:
    """Return the rows of the queryset that are among ``rows``. If they are only ``shown``, few keys are read first.

    Otherwise the database would follow the order of the list to fill the first page, and read the whole table if few
    rows match. If more than ``FEW`` match, it finds some soon in that order.
    """
    keys = few_keys(parts or [rows.order_by()]) if shown else None
    return queryset.filter(pk__in=rows.order_by().values("pk") if keys is None else keys)


def few_keys(parts: Iterable[QuerySet[Model]]) -> set[object] | None:
    """Return the keys of all rows of the parts; None if there are more than ``FEW``."""
    keys: set[object] = set()
    for part in parts:
        keys.update(part.values_list("pk", flat=True)[: FEW + 1 - len(keys)])
        if len(keys) > FEW:
            return None
    return keys


def found_once(rows: QuerySet[Model]) -> set[object] | QuerySet[Model, dict[str, object]]:
    """Return the keys of rows that are slow to find, so that a page searches once; a subquery if they are many."""
    keys = few_keys([rows.order_by()])
    return rows.order_by("-pk").values("pk")[:COUNTED] if keys is None else keys
