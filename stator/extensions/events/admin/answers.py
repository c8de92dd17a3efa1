"""What a user may do with the events of one object; the pages that withdraw an answer, and that make a link for one."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.utils import quote
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.db.models.functions import Lower
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils import timezone

from stator.admin.actions import ReasonForm
from stator.admin.confirmation import admin_url, ask, back, context_of, given, log, refuse
from stator.admin.listing import AnyAddressAdmin
from stator.exceptions import EventRefused
from stator.extensions.events.admin.sending import EVENT, may_send, offered_for
from stator.extensions.events.answer_links import are_served
from stator.extensions.events.available import answered_by, answers_to, available_to
from stator.extensions.events.edges import AwaitedEvent
from stator.extensions.events.events import refusal_of
from stator.extensions.events.senders import Sender
from stator.models import StatorModel
from stator.rows.clock import moment_text
from stator.rows.keys import shown_key
from stator.texts import counted, escape

# The longest name under which events are stored.
ADDRESS_LENGTH = 150
MOST_HOURS = 24 * 366

WITHDRAW = "The answer is deleted. The history keeps it, and that you have withdrawn it."
LINK = (
    "The link is for somebody without an account. It shows the object, and sends the event once, in the name of this "
    "address. It is of no use once the object has moved."
)


class WithdrawForm(ReasonForm):
    """The reason, and the event."""

    stator_event = forms.CharField(widget=forms.HiddenInput)


class LinkForm(forms.Form):
    """For whom a link is, and for how many hours."""

    stator_event = forms.CharField(widget=forms.HiddenInput)
    address = forms.EmailField(max_length=ADDRESS_LENGTH, help_text="Who answers. The history has this name.")
    hours = forms.IntegerField(
        initial=24, min_value=1, max_value=MOST_HOURS, help_text="After so many hours the link is of no use."
    )

    def clean_address(self) -> str:
        """Refuse the names of users, as whom a link would answer."""
        address, users = self.cleaned_data["address"], get_user_model()
        # Some collations of MariaDB compare iexact by case.
        named = users._default_manager.annotate(stator_name=Lower(users.USERNAME_FIELD))
        if named.filter(stator_name=address.lower()).exists():
            raise forms.ValidationError(f"{address} is a user here, who answers in the admin.")
        return str(address)


def offered_on(model_admin: Any, request: HttpRequest, row: Model) -> dict[str, list[str]]:
    """Return for the page of an object the events that the user may send, may withdraw, and may make links for."""
    given = answers_to([row])
    may = model_admin.actions is not None and model_admin.has_view_or_change_permission(request, row)
    sends = may and model_admin.has_send_permission(request, row)
    [events] = offered_for(model_admin, request, [row], given) if sends else [[]]
    return {
        "stator_events": [event.name for event in events],
        "stator_mine": answered_by(request.user, row, given[0]) if may else [],
        "stator_linked": [event.name for event in _linked(model_admin, request, row)],
    }


def withdraw_view(model_admin: AnyAddressAdmin, request: HttpRequest, obj: StatorModel, name: str) -> HttpResponse:
    """Ask for a reason, then take back what the user has sent to an object."""
    form = WithdrawForm(given(request), initial={EVENT: name})
    if not form.is_valid():
        words = [f"You withdraw your {name} to {obj}.", WITHDRAW]
        return ask(model_admin, request, form, title=f"Withdraw {name}", button="Withdraw", words=words)
    reason = form.cleaned_data["reason"]
    try:
        missing = obj.stator.withdraw(name, by=request.user, reason=reason).missing
    except EventRefused as refused:
        return refuse(model_admin, request, str(refused)) or _to_object(model_admin, obj)
    log(model_admin, request, [obj], f"Withdrew {name}. {reason}".strip())
    message = f"Your {escape(name)} is withdrawn. {counted(missing, 'sender')} more needed."
    model_admin.message_user(request, message, messages.SUCCESS)
    return back(model_admin, request) or _to_object(model_admin, obj)


def link_view(model_admin: AnyAddressAdmin, request: HttpRequest, obj: StatorModel, name: str) -> HttpResponse:
    """Ask for an address and hours, then show a link by which that address answers; it is stored nowhere."""
    event = next((each for each in _linked(model_admin, request, obj) if each.name == name), None)
    if event is None:
        raise PermissionDenied
    form = LinkForm(given(request), initial={EVENT: name})
    granted = f" You grant the permission {event.permission} for it." if event.permission else ""

    def asked() -> HttpResponse:
        words = [f"Whoever has the link can send {name} to {obj}.{granted}", LINK]
        return ask(model_admin, request, form, title=f"Link for {name}", button="Make the link", words=words)

    if not form.is_valid():
        return asked()
    address, hours = form.cleaned_data["address"], form.cleaned_data["hours"]
    if wrong := _refusal(event, obj, address):
        form.add_error("address", escape(wrong))
        return asked()
    try:
        path = obj.stator.link(name, by=address, expires=hours * 3600)
    except EventRefused as refused:
        form.add_error(None, escape(str(refused)))
        return asked()
    until = moment_text(timezone.now() + timedelta(hours=hours))
    log(model_admin, request, [obj], f"Made a link: {address} may send {name} until {until}.")
    context = {
        **context_of(model_admin, request), "title": f"Link for {name}", "event": name, "obj": obj, "granted": granted,
        "address": address, "until": until, "link": request.build_absolute_uri(path),
        "back": admin_url(model_admin, "change", quote(str(obj.pk))),
    }  # fmt: skip
    return TemplateResponse(request, "stator/admin/answer_link.html", context)


# A page about the object and the event with this name, which is posted.
View = Callable[[AnyAddressAdmin, HttpRequest, StatorModel, str], HttpResponse]
# By the end of their addresses.
VIEWS: dict[str, View] = {"withdraw": withdraw_view, "link": link_view}


def _linked(model_admin: Any, request: HttpRequest, row: Model) -> list[AwaitedEvent]:
    """Return the events for which the user may make links: what the user may send, also after an answer."""
    if model_admin.actions is None or not are_served() or not model_admin.has_link_permission(request, row):
        return []
    [events] = available_to(request.user, [row], lambda event, row: may_send(model_admin, request, event, row), [{}])
    return events


def _refusal(event: AwaitedEvent, row: Model, address: str) -> str:
    """Return why an address cannot send an event, "" if it can."""
    by, named = Sender(address, permitted=True), f"{row._meta.label} {shown_key(row.pk)}"
    if event in available_to(by, [row])[0]:
        return ""
    return refusal_of(event, row, by, named) or f"{named} has {event.name!r} from {address} already."


def _to_object(model_admin: AnyAddressAdmin, obj: Model) -> HttpResponse:
    return HttpResponseRedirect(admin_url(model_admin, "change", quote(str(obj.pk))))
