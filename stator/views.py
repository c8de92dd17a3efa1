"""Views: health and readiness for monitoring, and a worker that runs for some seconds in a request."""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from hashlib import sha256

from django.db import DatabaseError, InterfaceError, connections, transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.views import View
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_safe

from stator.conf import Settings, read_settings
from stator.models import StatorModel, Worker
from stator.rows.meta import by_database, managed
from stator.runner import StatorRunner
from stator.worker.startup import Unusable

logger = logging.getLogger("stator.views")

_running = threading.Lock()


class RequestRunner(View):
    """Runs a worker for ``HTTP_RUN_FOR`` seconds or until idle, on POST with ``Authorization: Bearer TOKEN``.

    Answers 200 and ``{"handled": {"app.model": n}, "failed": n, "seconds": s}``; 404 without a valid token, or if no
    token is set; 409 while this process works for another request; 503 if the database cannot be used or every model
    lacks a column.
    """

    @classmethod
    def as_view(cls, **initkwargs: object) -> Callable[..., HttpResponseBase]:
        """Return the view, exempt from CSRF protection and ``ATOMIC_REQUESTS``: workers have their own transactions."""
        view = csrf_exempt(super().as_view(**initkwargs))
        for alias in connections:
            view = transaction.non_atomic_requests(using=alias)(view)
        return view

    def dispatch(self, request: HttpRequest, *args: object, **kwargs: object) -> HttpResponseBase:
        """Answer 404 to any request without a valid token, whatever the method."""
        settings, problems = read_settings()
        if problems:
            logger.error("stator.settings_wrong", extra={"problem": problems[0]})
        if problems or not is_authorised(request, settings):
            raise Http404
        if request.method == "GET" and settings.ALLOW_QUERY_TOKEN and "token" in request.GET:
            return self.post(request)
        return super().dispatch(request, *args, **kwargs)

    def post(self, request: HttpRequest) -> HttpResponse:
        """Run a worker, unless this process already runs one."""
        if not _running.acquire(blocking=False):
            return JsonResponse({"error": "this process works for another request; try again later"}, status=409)
        try:
            return JsonResponse(_work(read_settings()[0]))
        except Unusable as error:
            logger.error("stator.database_unusable", extra={"why": str(error)})
            return JsonResponse({"error": "the database cannot be used; the log says why"}, status=503)
        finally:
            _running.release()


def is_authorised(request: HttpRequest, settings: Settings) -> bool:
    """Return whether the request has a valid token; the comparison takes constant time."""
    tokens = [settings.TOKEN] if isinstance(settings.TOKEN, str) else settings.TOKEN
    right = [sha256(token.encode(errors="replace")).digest() for token in tokens if token]
    given = [sha256(token).digest() for token in _given_tokens(request, settings)]
    return sum(secrets.compare_digest(one, other) for one in given for other in right) > 0


def _given_tokens(request: HttpRequest, settings: Settings) -> Iterator[bytes]:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        yield _header_bytes(token.strip())
    if token := request.headers.get("X-Stator-Token", ""):
        yield _header_bytes(token)
    if settings.ALLOW_QUERY_TOKEN and (token := request.GET.get("token", "")):
        yield token.encode(errors="replace")


def _header_bytes(text: str) -> bytes:
    """Return the bytes of a header as they were sent: servers decode headers as latin-1."""
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode(errors="replace")


def _work(settings: Settings) -> dict[str, object]:
    started = time.monotonic()
    runner = StatorRunner(run_for=settings.HTTP_RUN_FOR, until_idle=True, heed_signals=False)
    summary = runner.run()
    seconds = round(time.monotonic() - started, 3)
    return {"handled": summary.handled, "failed": summary.failed, "seconds": seconds}


@never_cache
@require_safe
def show_health(request: HttpRequest) -> HttpResponse:
    """Answer 200 without a query, so that a probe does not restart processes when the database is down."""
    return HttpResponse("alive\n", content_type="text/plain")


@never_cache
@require_safe
def show_readiness(request: HttpRequest) -> HttpResponse:
    """Answer 200 if the databases of all managed models answer, else 503 without a reason."""
    for alias in by_database(managed(StatorModel.subclasses)):
        try:
            Worker.objects.using(alias).live().exists()
        except (DatabaseError, InterfaceError):
            return HttpResponse("not\n", content_type="text/plain", status=503)
    return HttpResponse("ready\n", content_type="text/plain")
