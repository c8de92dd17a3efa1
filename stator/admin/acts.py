"""What an operator does to rows of the admin: retry, unlock, move. Every act is logged under the user's name."""

import logging
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin import helpers
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.utils import quote
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse

from stator.admin.listing import bounded_count, operated
from stator.graph import StateGraph
from stator.logs import escape
from stator.reports import REASON_LENGTH

logger = logging.getLogger("stator.admin")

# The admin's own log names each object up to this number; the event in the log file always has the whole number.
LOGGED = 1000
SHOWN = 20
FROM_OBJECT, CONFIRMED = "stator_object", "stator_confirmed"


class MoveForm(forms.Form):
    """Where rows are moved, and why."""

    state = forms.ChoiceField(label="Move to")
    reason = forms.CharField(max_length=REASON_LENGTH, required=False, widget=forms.TextInput(attrs={"size": 60}))

    def __init__(self, graph: type[StateGraph], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["state"].choices = [("", "---------"), *graph.choices]  # type: ignore[attr-defined]


@admin.action(description="Retry now", permissions=["retry"])
def stator_retry(model_admin: Any, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
    """Have the rows attempted now."""
    rows = _permitted(model_admin, request, queryset, "retry")
    _log(model_admin, request, rows, "Retry now.")
    count = operated(rows).retry()
    _tell(model_admin, request, count, "will be attempted now", "Claimed rows and those at rest are left alone.")
    return _back(request)


@admin.action(description="Unlock", permissions=["retry"])
def stator_unlock(model_admin: Any, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
    """End the claims on the rows."""
    rows = _permitted(model_admin, request, queryset, "retry")
    _log(model_admin, request, rows, "Unlocked.")
    count = operated(rows).unlock()
    _tell(model_admin, request, count, "unlocked", "Rows that nobody holds are left alone.")
    return _back(request)


@admin.action(description="Move to state\N{HORIZONTAL ELLIPSIS}", permissions=["move"])
def stator_move(model_admin: Any, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
    """Ask for a state and a reason, then move the rows there."""
    rows = _permitted(model_admin, request, queryset, "move")
    confirmed = CONFIRMED in request.POST
    form = MoveForm(model_admin.model.state_graph, request.POST if confirmed else None)
    if not (confirmed and form.is_valid()):
        return _ask(model_admin, request, rows, form)
    state, reason = form.cleaned_data["state"], form.cleaned_data["reason"]
    _log(model_admin, request, rows, f"Moved to {state} by hand. {reason}".strip())
    count = operated(rows).move(state, actor=request.user.get_username(), reason=reason)
    _tell(model_admin, request, count, f"moved to {state}")
    return _back(request)


ACTS: tuple[Any, ...] = (stator_retry, stator_unlock, stator_move)
NAMES = tuple(act.__name__ for act in ACTS)


def refuse_forbidden(model_admin: Any, request: HttpRequest, acts: tuple[Any, ...] = ACTS) -> None:
    """Answer 403 to an act that the user was not offered; the admin itself would only overlook it."""
    for act in acts:
        if act.__name__ in request.POST.getlist("action"):
            for permission in act.allowed_permissions:
                if not getattr(model_admin, f"has_{permission}_permission")(request):
                    raise PermissionDenied


def _permitted(model_admin: Any, request: HttpRequest, queryset: QuerySet[Any], permission: str) -> QuerySet[Any]:
    """The rows for which the user has the permission; asked row by row only where the project's admin has a say."""
    if not model_admin.differs_by_object:
        return queryset
    may = getattr(model_admin, f"has_{permission}_permission")
    pks = [row.pk for row in queryset.iterator(chunk_size=1000) if may(request, row)]
    if not pks:
        raise PermissionDenied
    return queryset.filter(pk__in=pks)


def _ask(model_admin: Any, request: HttpRequest, rows: QuerySet[Any], form: MoveForm) -> HttpResponse:
    context = {
        **model_admin.admin_site.each_context(request),
        "title": "Move to state",
        "opts": model_admin.opts,
        "media": model_admin.media,
        "form": form,
        "count": bounded_count(rows),
        "shown": [(row, row.state) for row in rows[:SHOWN]],
        "running": bounded_count(operated(rows).leased()),
        "selected": request.POST.getlist(helpers.ACTION_CHECKBOX_NAME),
        "across": request.POST.get("select_across", "0"),
        "from_object": FROM_OBJECT in request.POST,
        "checkbox": helpers.ACTION_CHECKBOX_NAME,
        "action": stator_move.__name__,
    }
    request.current_app = model_admin.admin_site.name
    return TemplateResponse(request, "stator/admin/move.html", context)


def _log(model_admin: Any, request: HttpRequest, rows: QuerySet[Any], message: str) -> None:
    """Keep who asked for it; before the act, since afterwards the queryset may mean other rows."""
    LogEntry.objects.log_actions(request.user.pk, list(rows[:LOGGED]), CHANGE, message)  # type: ignore[arg-type]
    fields = {"model": model_admin.opts.label_lower, "actor": request.user.get_username(), "act": escape(message)}
    logger.info("stator.act", extra=fields)


def _tell(model_admin: Any, request: HttpRequest, count: int, done: str, otherwise: str = "") -> None:
    noun = model_admin.opts.verbose_name if count == 1 else model_admin.opts.verbose_name_plural
    level = messages.SUCCESS if count else messages.WARNING
    model_admin.message_user(request, f"{count:,} {noun} {done}. {otherwise}".strip(), level)


def _back(request: HttpRequest) -> HttpResponse | None:
    """To the page of the object, where the act was asked for there; else the list comes again."""
    pk = request.POST.get(helpers.ACTION_CHECKBOX_NAME, "")
    return HttpResponseRedirect(f"{request.path}{quote(pk)}/change/") if FROM_OBJECT in request.POST else None
