"""The list filter for the event that objects wait for."""

from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest

from stator.admin.filters import SOMEWHERE
from stator.extensions.events.events import declared_events
from stator.rows.meta import graph_of, owner_of
from stator.rows.state_column import state_field


class EventFilter(admin.SimpleListFilter):
    """Rows that wait for an event."""

    title = "waits for"
    parameter_name = "waits_for"

    def lookups(self, request: HttpRequest, model_admin: admin.ModelAdmin) -> list[tuple[str, str]]:
        """Return the events of the graph."""
        return [(name, name) for name in graph_of(model_admin.model).event_names]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Model]) -> QuerySet[Model]:
        """Return the rows whose states take the chosen event."""
        if not self.value():
            return queryset
        states = [event.state.name for event in declared_events(owner_of(queryset.model), str(self.value()))]
        return queryset.filter(SOMEWHERE, **state_field(queryset.model).among(states))
