"""What the admin of a managed model has for events: who may send and make links, and the pages of answers."""

from functools import partial
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.urls import URLPattern, path

from stator.admin.control_characters import Shown, SpellingAdmin
from stator.extensions.events.admin import answers
from stator.extensions.events.admin.sending import EVENT, may_send


class HasEventPages(SpellingAdmin[Shown]):
    """Override ``has_link_permission`` if not everybody who may send an event may make links for others."""

    def has_send_permission(self, request: HttpRequest, obj: Shown | None = None) -> bool:
        """Return whether the user may send one of the events of the graph."""
        own: Any = self
        events = (event for state in own.model.state_graph.states.values() for event in state.events.values())
        return any(may_send(own, request, event, obj) for event in events)

    def has_link_permission(self, request: HttpRequest, obj: Shown | None = None) -> bool:
        """Return whether the user may make links by which others send the events that the user may send."""
        return self.has_send_permission(request, obj)

    def get_urls(self) -> list[URLPattern]:
        """Return the URLs of the pages of answers, and all others."""
        name = f"{self.opts.app_label}_{self.opts.model_name}_stator"
        answered = [
            path(f"<path:object_id>/stator/{end}/", self.admin_site.admin_view(partial(self.answer_view, view)),
                 name=f"{name}_{end}")
            for end, view in answers.VIEWS.items()
        ]  # fmt: skip
        return [*answered, *super().get_urls()]

    def answer_view(self, view: answers.View, request: HttpRequest, object_id: str) -> HttpResponse:
        """Return a page that is about an answer to an event of an object."""
        model_admin: Any = self
        row = model_admin.visible(request, object_id)
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        return view(model_admin, request, row, request.POST.get(EVENT, ""))
