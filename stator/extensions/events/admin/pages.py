"""Events in the admin: their list, what waits for a user, and what pages and lists of objects have for them."""

from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.contrib.admin import AdminSite, ModelAdmin
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.safestring import SafeString

from stator.admin import actions, detail, filters, timeline
from stator.admin.filters import SOMEWHERE
from stator.admin.read_only import OfObjectAdmin
from stator.admin.timeline import StoredEntry, TimelineEvent, move_text
from stator.extensions.events.admin import inbox
from stator.extensions.events.admin.answers import offered_on
from stator.extensions.events.admin.sending import stator_send
from stator.extensions.events.available import skips
from stator.extensions.events.edges import NAME
from stator.extensions.events.events import EVENT, declared_events
from stator.extensions.events.models import Event
from stator.models import StatorModel
from stator.rows.meta import graph_of, owner_of
from stator.rows.problem import Problem
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


@admin.register(Event)
class EventAdmin(OfObjectAdmin):
    """Events that were sent to objects, with their payloads."""

    list_display = ("at", "model_label", "of_object", "name", "sender", "key")
    list_filter = ("name", "at")
    search_fields = ("=model_label", "=object_pk", "=sender", "=key")
    ordering = ("-pk",)

    def get_urls(self) -> list[URLPattern]:
        """Return the URLs of the list and of the page of what waits for the user."""
        view = self.admin_site.admin_view(self.waiting_view)
        return [path("waiting/", view, name="stator_event_waiting"), *super().get_urls()]

    def waiting_view(self, request: HttpRequest) -> HttpResponse:
        """Show what waits for events that the user may send; every user of the admin may open the page."""
        request.current_app = self.admin_site.name
        inbox.counts.forget()
        groups = inbox.waiting_for(self.admin_site, request)
        context = {**self.admin_site.each_context(request), "title": "Waiting for you", "groups": groups}
        return TemplateResponse(request, "stator/admin/waiting.html", context)

    def with_entries(self, site: AdminSite, request: HttpRequest, listed: list[Any]) -> list[object]:
        """Return the apps with the link to what waits for the user, first in its app, if the user may send events."""
        label, config = Event._meta.app_label, Event._meta.app_config
        if (count := inbox.counts.of(site, request)) is None:
            return listed
        link = {
            "model": Event, "name": f"Waiting for you{f' ({count})' * bool(count)}", "object_name": "Waiting",
            "perms": {}, "admin_url": reverse("admin:stator_event_waiting", current_app=site.name), "add_url": None,
            "view_only": True,
        }  # fmt: skip
        mine = next((app for app in listed if app["app_label"] == label), None)
        if mine is None:
            url = reverse("admin:app_list", kwargs={"app_label": label}, current_app=site.name)
            mine = {
                "name": getattr(config, "verbose_name", label), "app_label": label, "app_url": url,
                "has_module_perms": True, "models": [],
            }  # fmt: skip
            listed = [*listed, mine]
        mine["models"].insert(0, link)
        return listed


def _entry(act: StoredEntry, who: str, details: str) -> TimelineEvent:
    """Return the entry of an event: its name begins the stored reason."""
    named = NAME.match(act.reason)
    name = named.group() if named else ""
    what = f"{move_text(act)} by the event {name}" if act.to else f"Event {name} in {act.source}"
    return TimelineEvent(str(act.kind), act.at, what, who, act.reason[len(name) :].lstrip(": "), details)


def _forms(
    model_admin: ModelAdmin, request: HttpRequest, row: StatorModel, reasons: list[Problem]
) -> Iterator[SafeString]:
    """Yield the forms that send an event to an object, withdraw one, and make a link."""
    if any((offered := offered_on(model_admin, request, row)).values()):
        context = {**offered, "original": row, "opts": model_admin.opts}
        yield render_to_string("stator/admin/events.html", context, request)


actions.FURTHER.append(lambda model: [stator_send] if model.state_graph.event_names else [])
actions.PERMISSIONS.append("send")
actions.CAUTIONS.append(skips)
filters.FURTHER.append(lambda model: [EventFilter] if model.state_graph.event_names else [])
timeline.SENTENCES[EVENT] = _entry
detail.FIRST_FORMS.append(_forms)
