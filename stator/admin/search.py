"""Search over every list of the admin: objects, tasks, queues and workers by key or text, and what extensions find."""

from collections.abc import Callable, Iterable, Iterator

from django.contrib.admin import AdminSite
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from stator.admin.fields import can_be_key
from stator.admin.links import list_of, page_of
from stator.admin.listing import AnyAddressAdmin
from stator.admin.read_only import KeptAdmin, WorkerAdmin, newest
from stator.extensions.admin.sections import Cell, Section
from stator.models import StatorModel
from stator.rows.state_column import state_name

# Matches that are shown of each list.
OF_EACH = 5

HEADS = ("Where", "Object", "State", "Matched")

# What extensions find beside the lists: rows with cells under ``HEADS``.
FURTHER: list[Callable[[AdminSite, HttpRequest, str], Iterable[tuple[Cell, ...]]]] = []


def results(site: AdminSite, request: HttpRequest, words: str) -> Section:
    """Return what the user may see of these words; at most three statements a list, among its newest rows."""
    words = words.replace("\0", "").strip()
    rows = [row for model in _searched(site) for row in _in_list(site, request, model, words)] if words else []
    rows += [row for further in FURTHER for row in further(site, request, words)] if words else []
    note = f"Up to {OF_EACH} of each list; texts are searched among the newest rows of each."
    return Section("found", f"Search for {words}", HEADS, rows, note=note, empty="Nothing was found.")


def _searched(site: AdminSite) -> list[type[Model]]:
    """Return the models of our lists, without the framework's records."""
    ours = [model for model, owner in site._registry.items() if isinstance(owner, AnyAddressAdmin)]
    kept = [model for model in ours if not isinstance(site.get_model_admin(model), KeptAdmin)]
    kept += [model for model in ours if isinstance(site.get_model_admin(model), WorkerAdmin)]
    return sorted(kept, key=lambda model: model._meta.label)


def _in_list(site: AdminSite, request: HttpRequest, model: type[Model], words: str) -> Iterator[tuple[Cell, ...]]:
    owner = site.get_model_admin(model)
    if not owner.has_view_or_change_permission(request):
        return
    every: QuerySet[Model] = owner.get_queryset(request)
    label = Cell(model._meta.label, list_of(site, model))
    by_key = list(every.filter(pk=words)[:1]) if can_be_key(model, words) else []
    for row in by_key:
        yield label, _named(site, row), _state(row), Cell("key")
    if not owner.get_search_fields(request):
        return
    matching, _ = owner.get_search_results(request, newest(every, "pk"), words)
    for row in matching.exclude(pk__in=[row.pk for row in by_key])[:OF_EACH]:
        yield label, _named(site, row), _state(row), Cell("text", list_of(site, model, q=words))


def _state(row: object) -> Cell:
    return Cell(state_name(row) if isinstance(row, StatorModel) else "")


def _named(site: AdminSite, row: Model) -> Cell:
    return Cell(str(row)[:100], page_of(site, type(row), row.pk))
