"""The action that sends an event to objects: asks for the event, then for what its form takes."""

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse

from stator.admin.bulk import ActionSpec, ask_about, carry_out, permitted
from stator.admin.confirmation import refuse
from stator.admin.confirmed_snapshot import confirmed_in
from stator.admin.listing import AnyAddressAdmin
from stator.exceptions import EventRefused
from stator.extensions.events.available import Answers, available_to
from stator.extensions.events.edges import AwaitedEvent
from stator.extensions.events.events import declared_events, form_of, has_fields, has_permission, payload_of, send
from stator.rows.locking import Locked, in_batches
from stator.rows.meta import graph_of, owner_of, written_to
from stator.rows.state_column import state_field, state_of
from stator.texts import escape

# Objects of one request: each gets its event in a transaction of its own.
MAX_SENT = 500

# The fields of the page: the chosen event, and the event whose form was shown.
EVENT, ASKED = "stator_event", "stator_asked"

ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"


class EventForm(forms.Form):
    """The choice of an event."""

    stator_event = forms.ChoiceField(label="Event")

    def __init__(self, names: list[str], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field: Any = self.fields[EVENT]
        field.choices = [("", "---------"), *((name, name) for name in names)]


def may_send(model_admin: AnyAddressAdmin, request: HttpRequest, event: AwaitedEvent, obj: Model | None = None) -> bool:
    """Return whether the user may send an event: by its permission, or else by the permission to change objects."""
    if event.permission:
        return has_permission(request.user, event, obj)
    return bool(getattr(model_admin, "has_retry_permission")(request, obj))  # noqa: B009 - of StatorAdmin


def offered_for(
    model_admin: AnyAddressAdmin, request: HttpRequest, rows: Sequence[Model], answers: Sequence[Answers]
) -> list[list[AwaitedEvent]]:
    """Return the events that the user may send to each row now, to which these answers have come."""
    return available_to(request.user, rows, lambda event, row: may_send(model_admin, request, event, row), answers)


def takes(model_admin: AnyAddressAdmin, request: HttpRequest, row: Model) -> list[str]:
    """Return the names of the events that the state of a row takes and that the user has the permission for."""
    state = state_of(row)
    return (
        [event.name for event in state.events.values() if may_send(model_admin, request, event, row)] if state else []
    )


@admin.action(description=f"Send event{ELLIPSIS}", permissions=["send"])
def stator_send(model_admin: AnyAddressAdmin, request: HttpRequest, queryset: QuerySet[Model]) -> HttpResponse | None:
    """Ask for an event and its payload, then send it to the rows whose states take it."""
    if queryset.order_by()[: MAX_SENT + 1].count() > MAX_SENT:
        return refuse(model_admin, request, f"An event is sent to at most {MAX_SENT} objects at once; choose fewer.")
    owner = owner_of(queryset.model)
    allowed = [
        name
        for name in graph_of(owner).event_names
        if any(may_send(model_admin, request, event) for event in declared_events(owner, name))
    ]
    name = request.POST.get(EVENT, "")
    if name not in allowed:
        rows = permitted(model_admin, request, queryset, "send")
        chosen = EventForm(allowed, request.POST if EVENT in request.POST else None)
        return ask_about(model_admin, request, rows, chosen, title="Send an event", words="are chosen.", button="Next")
    events = declared_events(owner, name)
    there = state_field(owner).among(event.state for event in events)
    rows = permitted(model_admin, request, queryset.filter(**there), "send")
    # The same event may need another permission in another state.
    may = [row.pk for row in rows if name in takes(model_admin, request, row)]
    rows = model_admin.get_queryset(request).filter(pk__in=may)
    snapshot = confirmed_in(request, queryset.model)
    form = _form(events[0], request.POST if snapshot and request.POST.get(ASKED) == name else None)

    def asked() -> HttpResponse:
        words = f"will get the event {name}."
        return ask_about(model_admin, request, rows, form, title=f"Send {name}", words=words, button=f"Send {name}")

    def refused(why: str) -> HttpResponse:
        form.add_error(None, escape(why))
        return asked()

    if not (snapshot and form.is_bound and form.is_valid()):
        return asked()
    payload = _payload(events[0], form)
    reason = form.cleaned_data["stator_reason"]
    act = ActionSpec(
        f"Sent {name}. {reason}".strip(), f"got {name}",
        lambda picked: _send(model_admin, request, picked, name, payload, reason),
        "in a state that does not take it, or refused", permission="send", refused=refused,
    )  # fmt: skip
    return carry_out(model_admin, request, rows, act, snapshot)


def _form(event: AwaitedEvent, given: object) -> forms.Form:
    """Return the event's form, bound if something was given, with the hidden fields of the page and a reason."""
    form = form_of(event)(given)
    form.fields["stator_reason"] = forms.CharField(
        label="Reason", max_length=200, required=False, help_text="For the history."
    )
    for name in (EVENT, ASKED):
        form.fields[name] = forms.CharField(initial=event.name, widget=forms.HiddenInput)
    return form


def _payload(event: AwaitedEvent, form: forms.Form) -> object:
    own = {name: value for name, value in payload_of(form).items() if name not in (EVENT, ASKED, "stator_reason")}
    return own if has_fields(event) else own["payload"]


def _send(
    model_admin: AnyAddressAdmin, request: HttpRequest, rows: QuerySet[Model], name: str, payload: object, reason: str
) -> int:
    """Send the event to each row; raise the refusal if there is only one."""
    user = request.user

    def send_one(using: str, locked: QuerySet[Model], before: list[Locked]) -> int:
        [pk] = [each.pk for each in before]
        if name not in takes(model_admin, request, QuerySet(rows.model, using=using).get(pk=pk)):
            raise EventRefused(f"{user.get_username()} may not send {name!r} to an object in {before[0].state}")
        send(rows.model, pk, name, payload, by=user, reason=reason, using=using)
        return 1

    sent, refusals, pks = 0, [], list(rows.order_by("pk").values_list("pk", flat=True))
    for pk in pks:
        try:
            sent += in_batches(QuerySet(rows.model, using=written_to(rows)).filter(pk=pk), send_one)
        except EventRefused as refused:
            refusals.append(refused)
    if len(pks) == 1 and refusals:
        raise refusals[0]
    return sent
