"""What the acts of operators share: a page that asks before anything is done, the log, and the way back."""

from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin import helpers
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.admin.utils import quote
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

# The admin's own log names each object up to this number; histories have all of them.
LOGGED = 1000
SHOWN = 20
FROM_OBJECT, CONFIRMED = "stator_object", "tasks_confirmed"


def given(request: HttpRequest) -> Any:
    """What was filled in, once the page that asks has been shown."""
    return request.POST if CONFIRMED in request.POST else None


def ask(
    model_admin: Any, request: HttpRequest, form: forms.Form, *, title: str, does: str, act: str = "",
    words: Iterable[str] = (), warning: str = "", rows: Iterable[str] = (),
) -> HttpResponse:  # fmt: skip
    """The page that says what is about to be done, and to which rows; ``does`` is on its button."""
    selected = request.POST.getlist(helpers.ACTION_CHECKBOX_NAME)
    listed = [*rows]
    context = {
        **model_admin.admin_site.each_context(request),
        "title": title,
        "opts": model_admin.opts,
        "media": model_admin.media,
        "form": form,
        "does": does,
        "words": [*words],
        "warning": warning,
        "shown": listed[:SHOWN],
        "more": len(listed) > SHOWN,
        "act": act,
        "selected": selected,
        "across": request.POST.get("select_across", "0"),
        "from_object": FROM_OBJECT in request.POST,
        "confirmed": CONFIRMED,
        "checkbox": helpers.ACTION_CHECKBOX_NAME,
        "back": _url(model_admin, request, selected),
    }
    request.current_app = model_admin.admin_site.name
    return TemplateResponse(request, "admin/tasks/ask.html", context)


def buttons(acts: Iterable[Any]) -> list[dict[str, str]]:
    """Acts as the page of an object offers them."""
    return [{"name": act.__name__, "label": act.short_description} for act in acts]


def log(request: HttpRequest, rows: Any, message: str) -> None:
    """Keep who asked for it; before the act, since afterwards the queryset may mean other rows."""
    LogEntry.objects.log_actions(request.user.pk, list(rows[:LOGGED]), CHANGE, message)  # type: ignore[arg-type]


def tell(model_admin: Any, request: HttpRequest, count: int, done: str, otherwise: str = "") -> None:
    """Say how many rows it was done to."""
    noun = model_admin.opts.verbose_name if count == 1 else model_admin.opts.verbose_name_plural
    level = messages.SUCCESS if count else messages.WARNING
    model_admin.message_user(request, f"{count:,} {noun} {done}. {otherwise}".strip(), level)


def back(model_admin: Any, request: HttpRequest) -> HttpResponse | None:
    """To the page of the object, where the act was asked for there; else the list comes again."""
    if FROM_OBJECT not in request.POST:
        return None
    return HttpResponseRedirect(_url(model_admin, request, request.POST.getlist(helpers.ACTION_CHECKBOX_NAME)))


def admin_url(model_admin: Any, view: str, *args: Any) -> str:
    """Where a page of the same model is."""
    opts = model_admin.opts
    site = model_admin.admin_site.name
    return reverse(f"admin:{opts.app_label}_{opts.model_name}_{view}", args=args, current_app=site)


def _url(model_admin: Any, request: HttpRequest, selected: list[str]) -> str:
    if FROM_OBJECT in request.POST and selected:
        return admin_url(model_admin, "change", quote(selected[0]))
    return admin_url(model_admin, "changelist")
