"""What waits for the events of one user, over all models."""

from collections.abc import Iterator
from typing import Any

from django.contrib.admin import AdminSite
from django.db import router
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from stator.admin.access import Pages
from stator.admin.filters import SOMEWHERE, EventFilter
from stator.admin.listing import bounded_count
from stator.admin.sending import may_send
from stator.graph.durations import seconds_of
from stator.models import StatorModel
from stator.overview.sections import Cell, Section
from stator.rows.columns import stayed
from stator.rows.events import declared_events
from stator.rows.meta import graph_of, managed
from stator.texts import told

HEADS = ("Model", "Event", "Objects", "The first for")


def waiting_for(site: AdminSite, request: HttpRequest) -> Section:
    """Return a line for each model and event that objects wait for and that the user may send."""
    rows = [row for model in sorted(managed(StatorModel.subclasses), key=_label) for row in _of(site, request, model)]
    return Section("inbox", "Waiting for you", HEADS, rows, empty="Nothing waits for an event that you may send.")


def _label(model: type[Model]) -> str:
    return str(model._meta.label)


def _of(site: AdminSite, request: HttpRequest, model: type[StatorModel]) -> Iterator[tuple[Cell, ...]]:
    names = graph_of(model).event_names
    if not names or not site.is_registered(model):
        return
    model_admin: Any = site.get_model_admin(model)
    pages = Pages(site, request)
    if not pages.may_view(model):
        return
    every = model_admin.get_queryset(request).using(router.db_for_read(model))
    for name in names:
        states = [
            event.state.name
            for event in declared_events(model, name)
            if event.target is not None and may_send(model_admin, request, event)
        ]
        rows: QuerySet[Any] = every.filter(SOMEWHERE, state__in=states)
        if states and (count := bounded_count(rows)):
            longest = rows.order_by("state_changed").values_list(stayed(), flat=True).first()
            url = pages.list_of(model, **{EventFilter.parameter_name: name})
            yield Cell(_label(model)), Cell(name, url), Cell(told(count)), Cell.lasting(seconds_of(longest))
