"""The page of a link by which somebody without an account answers."""

import logging

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import path
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt

from stator.exceptions import EventRefused
from stator.extensions.events.answer_links import AnswerLink, answer_of
from stator.extensions.events.events import form_of, has_fields, payload_of

logger = logging.getLogger("stator.events")

METHODS = ("GET", "HEAD", "POST")
GONE = 410


# The path itself is the secret that another site would lack, and mail programs keep no cookies.
@csrf_exempt
@never_cache
def show_answer(request: HttpRequest, token: str) -> HttpResponse:
    """Show the object and the form of the event; on POST send it. 410 with the reason if the link is of no use."""
    if request.method not in METHODS:
        return _page(request, 405, refusal="This page takes GET and POST.")
    answer = answer_of(token)
    if answer is None:
        return _page(request, 404, refusal="There is no such link.")
    try:
        return _answered(request, answer)
    except EventRefused as error:
        return _page(request, GONE, refusal=str(error))
    except Exception:
        # Django would log the path.
        fields = {"model": answer.label, "pk": answer.pk, "event_name": answer.event}
        logger.exception("stator.answer_failed", extra=fields)
        return _page(request, 500, refusal="Something went wrong. Please try again later.")


def _answered(request: HttpRequest, answer: AnswerLink) -> HttpResponse:
    row, event = answer.asked()
    form = form_of(event)(request.POST if request.method == "POST" else None)
    context = {"row": row, "noun": row._meta.verbose_name, "event": event.name, "sender": answer.sender, "form": form}
    if not (form.is_bound and form.is_valid()):
        return _page(request, 200, **context)
    payload = payload_of(form)
    sent = answer.give(payload if has_fields(event) else payload["payload"])
    return _page(request, 200, **context, sent=sent)


def _page(request: HttpRequest, status: int, **context: object) -> HttpResponse:
    response = render(request, "stator/answer.html", context, status=status)
    response["Referrer-Policy"] = "no-referrer"
    if status == 405:
        response["Allow"] = ", ".join(METHODS)
    # Django would log the path, which is the secret.
    response._has_been_logged = True  # type: ignore[attr-defined]
    return response


urlpatterns = [path("answer/<str:token>/", show_answer, name="answer")]
