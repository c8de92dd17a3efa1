"""What actions of the admin share: a confirmation page, a log entry, a message, and the way back."""

import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from django import forms
from django.contrib import messages
from django.contrib.admin import ModelAdmin, helpers
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.utils import quote
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.utils.http import url_has_allowed_host_and_scheme

from stator.admin.confirmed_snapshot import CONFIRMED, FIELD, Snapshot
from stator.admin.links import address_of
from stator.texts import escape

logger = logging.getLogger("stator.admin")

# The admin's own log lists each object up to this number; the event in the log file always has the full number.
LOGGED = 1000
# Rows that a confirmation page names.
SHOWN = 20
FROM_OBJECT = "stator_object"
# The address of the page that started an action, unless it is the list or the page of the object.
BEGUN_AT = "stator_back"

# None shows the list again.
ActionFunction = Callable[..., HttpResponse | None]


def given(request: HttpRequest) -> QueryDict | None:
    """Return the submitted form data if the confirmation page was shown; None before that."""
    return request.POST if CONFIRMED in request.POST else None


def ask(
    model_admin: ModelAdmin, request: HttpRequest, form: forms.Form, *, title: str, button: str,
    words: Iterable[str] = (), warning: str = "", rows: Iterable[object] = (), snapshot: Snapshot | None = None,
    is_action: bool = True, **further: object,
) -> HttpResponse:  # fmt: skip
    """Return the page that shows an action's rows and what it would do to them, and asks for its input.

    ``snapshot``: the rows as they are shown, if the action is to leave rows alone that have changed since.
    ``is_action``: whether the list's form gets the answer, and not the page's own address.
    """
    listed = list(islice(rows, SHOWN + 1))
    context = {
        **context_of(model_admin, request),
        "is_action": is_action,
        "title": title,
        "form": form,
        "button": button,
        "words": words,
        "warning": warning,
        "shown": listed[:SHOWN],
        "more": len(listed) > SHOWN,
        "confirmed": CONFIRMED,
        "seen": snapshot.as_text() if snapshot else "",
        "seen_field": FIELD,
        "back": _url(model_admin, request),
        **further,
    }
    return TemplateResponse(request, "stator/admin/confirm.html", context)


def context_of(model_admin: ModelAdmin, request: HttpRequest) -> dict[str, object]:
    """Return the context of a page that sends the action again."""
    request.current_app = model_admin.admin_site.name
    return {
        **model_admin.admin_site.each_context(request),
        "opts": model_admin.opts,
        "media": model_admin.media,
        "selected": request.POST.getlist(helpers.ACTION_CHECKBOX_NAME),
        "across": request.POST.get("select_across", "0"),
        "from_object": FROM_OBJECT in request.POST,
        "begun_at": _begun_at(request),
        "checkbox": helpers.ACTION_CHECKBOX_NAME,
        "action": _action(request),
    }


def _action(request: HttpRequest) -> str:
    """Return the chosen action: a list may have a choice above and another below; ``index`` names the used one."""
    choices = {str(index): name for index, name in enumerate(request.POST.getlist("action"))}
    return choices.get(request.POST.get("index", "0"), choices.get("0", ""))


def log(
    model_admin: ModelAdmin,
    request: HttpRequest,
    rows: QuerySet[Model] | Sequence[Model],
    message: str,
    flag: int = CHANGE,
) -> None:
    """Log who asked for the action; before it, since afterwards the queryset may contain other rows."""
    LogEntry.objects.log_actions(request.user.pk, list(rows[:LOGGED]), flag, message)  # type: ignore[arg-type]
    fields = {"model": model_admin.opts.label_lower, "actor": request.user.get_username(), "act": escape(message)}
    logger.info("stator.act", extra=fields)


def tell(model_admin: ModelAdmin, request: HttpRequest, count: int, done: str, otherwise: str = "") -> None:
    """Show the user a message that says how many rows were changed."""
    level = messages.SUCCESS if count else messages.WARNING
    model_admin.message_user(request, f"{count:,} {noun_of(model_admin, count)} {done}. {otherwise}".strip(), level)


def refuse(model_admin: ModelAdmin, request: HttpRequest, words: str) -> HttpResponse | None:
    """Show why nothing was done."""
    model_admin.message_user(request, escape(" ".join(words.split())), messages.ERROR)
    return back(model_admin, request)


def back(model_admin: ModelAdmin, request: HttpRequest) -> HttpResponse | None:
    """Redirect to the page where the action was started; None shows the list again."""
    if _begun_at(request) or FROM_OBJECT in request.POST:
        return HttpResponseRedirect(_url(model_admin, request))
    return None


def noun_of(model_admin: ModelAdmin, count: int) -> str:
    """Return the name of one row or of many."""
    return str(model_admin.opts.verbose_name if count == 1 else model_admin.opts.verbose_name_plural)


def admin_url(model_admin: ModelAdmin, view: str, *args: object) -> str:
    """Return the URL of another admin page of the same model."""
    return address_of(model_admin.admin_site, model_admin.model, view, *args)


def _begun_at(request: HttpRequest) -> str:
    """Return the address of the page of this site where an action was started; "" if that is the list or an object."""
    address = request.POST.get(BEGUN_AT, "")
    return address if url_has_allowed_host_and_scheme(address, None) else ""


def _url(model_admin: ModelAdmin, request: HttpRequest) -> str:
    if begun_at := _begun_at(request):
        return begun_at
    selected = request.POST.getlist(helpers.ACTION_CHECKBOX_NAME)
    if FROM_OBJECT in request.POST and selected:
        return admin_url(model_admin, "change", quote(selected[0]))
    return admin_url(model_admin, "changelist")
