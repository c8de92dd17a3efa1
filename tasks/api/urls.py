"""The API as URL patterns: ``path("api/", include("tasks.api.urls"))``."""

from collections.abc import Callable
from typing import Any

from django.db import connections, transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, URLResolver, re_path
from django.views.decorators.csrf import csrf_exempt
from ninja import NinjaAPI

import stator
from tasks.api import claims, errors, publishing, queues, schedules, searching
from tasks.api.bodies import JsonParser

DESCRIPTION = """Publish tasks, claim them and report their outcomes.

Every request except `health` needs a token, in the header `Authorization: Bearer TOKEN`. Durations are in seconds.
The answer to a refused request is `{"error": code, "detail": sentence}`.
"""

api = NinjaAPI(
    title="Tasks",
    version=stator.__version__,
    description=DESCRIPTION,
    parser=JsonParser(),
    urls_namespace="tasks-api",
)
errors.register(api)
for router in (queues.router, publishing.router, claims.router, searching.router, schedules.router):
    api.add_router("", router)


@csrf_exempt
def nothing_here(request: HttpRequest) -> HttpResponse:
    """Answer a path that the API does not have."""
    return errors.answer(errors.no_such_path())


def _patterns() -> list[URLPattern | URLResolver]:
    patterns, _, _ = api.urls
    for pattern in patterns:
        _exempt(pattern)
    return [*patterns, re_path("", nothing_here)]


def _exempt(pattern: Any) -> None:
    """Exempt a view from ATOMIC_REQUESTS, because its transaction would stay open while a request waits."""
    view = _with_json_errors(pattern.callback)
    for alias in connections:
        view = transaction.non_atomic_requests(using=alias)(view)
    pattern.callback = view


def _with_json_errors(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Wrap a view so that errors outside ninja have the same format: unsupported methods and unknown paths."""

    @csrf_exempt
    def wrapped(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        try:
            response = view(request, *args, **kwargs)
        except Http404:
            return errors.answer(errors.no_such_path())
        return errors.answer(errors.NotAllowed(response["Allow"])) if response.status_code == 405 else response

    return wrapped


app_name = "tasks-api"
urlpatterns = _patterns()
