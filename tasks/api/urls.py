"""The API as URL patterns: ``path("api/", include("tasks.api.urls"))``."""

from collections.abc import Callable

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.db import connections, transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import ResolverMatch, URLPattern, URLResolver, re_path
from django.views.decorators.csrf import csrf_exempt
from ninja import NinjaAPI
from ninja.operation import AsyncOperation

import stator
from stator.asynchronous import has_loop
from tasks.api import (
    batches,  # tasks.extensions.batches
    claims,
    errors,
    objects,
    publishing,
    queues,
    searching,
)
from tasks.api.bodies import JsonParser
from tasks.api.documents import View
from tasks.api.server import give_connections_back
from tasks.extensions.events import api as events
from tasks.extensions.problems import api as problems
from tasks.extensions.progress import api as progress
from tasks.extensions.schedules import api as schedules
from tasks.extensions.steps import api as steps

# The endpoints that programs use for each task are tried first: a path is compared with each pattern in turn.
FIRST = ("publish", "claim", "heartbeat", "resolve", "fail")

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
for router in (
    queues.router, publishing.router,
    batches.router,  # tasks.extensions.batches
    claims.router,
    progress.router,  # tasks.extensions.progress
    steps.router,  # tasks.extensions.steps
    searching.router,
    problems.router,  # tasks.extensions.problems
    schedules.router,  # tasks.extensions.schedules
    objects.router,
    events.router,  # tasks.extensions.events
):  # fmt: skip
    api.add_router("", router)


@csrf_exempt
def nothing_here(request: HttpRequest) -> HttpResponse:
    """Answer a path that the API does not have."""
    return errors.answer(errors.no_such_path())


class OnLoop(URLPattern):
    """A pattern with another view where an event loop runs, as under ASGI. There it is asynchronous."""

    def resolve(self, path: str) -> ResolverMatch | None:
        """Return the match with the view for this server."""
        match = super().resolve(path)
        if match is not None and has_loop():
            match.func = awaiting
        return match


def _patterns() -> list[URLPattern | URLResolver]:
    patterns = [pattern for pattern in api.urls[0] if isinstance(pattern, URLPattern)]
    patterns.sort(key=lambda pattern: pattern.name not in FIRST)
    for pattern in patterns:
        pattern.callback = _exempt(_with_json_errors(pattern.callback))
    return [*map(_on_loop, patterns), re_path("", nothing_here)]


def _on_loop(pattern: URLPattern) -> URLPattern:
    if str(pattern.pattern) != claims.PATH.replace("{", "<").replace("}", ">"):
        return pattern
    return OnLoop(pattern.pattern, pattern.callback, pattern.default_args, pattern.name)


def _exempt(view: View) -> View:
    """Exempt a view from ATOMIC_REQUESTS, because its transaction would stay open while a request waits."""
    for alias in connections:
        view = transaction.non_atomic_requests(using=alias)(view)
    return view


def _with_json_errors(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """Wrap a view so that errors outside ninja have the same format: unsupported methods and unknown paths."""

    @csrf_exempt
    def wrapped(request: HttpRequest, *args: object, **kwargs: object) -> HttpResponse:
        try:
            response = view(request, *args, **kwargs)
        except Http404:
            return errors.answer(errors.no_such_path())
        finally:
            # Under ASGI each request has a thread of its own, which would take a connection that is kept with it.
            if isinstance(request, ASGIRequest):
                give_connections_back()
        return errors.answer(errors.NotAllowed(response["Allow"])) if response.status_code == 405 else response

    return wrapped


_claiming = AsyncOperation(claims.PATH, ["POST"], claims.aclaim, auth=claims.CLAIM, response=claims.CLAIMED)
_claiming.api = api


async def _await_claim(request: HttpRequest, **kwargs: object) -> HttpResponseBase:
    """Claim without holding a thread while the request waits."""
    if request.method != "POST":
        return errors.answer(errors.NotAllowed("POST"))
    try:
        return await _claiming.run(request, **kwargs)
    finally:
        # Authorization has used a connection, even if it refused the token.
        await sync_to_async(give_connections_back)()


awaiting = csrf_exempt(_exempt(_await_claim))

app_name = "tasks-api"
urlpatterns = _patterns()
