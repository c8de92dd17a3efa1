"""Views for monitoring of the site: metrics for Prometheus, health and readiness."""

from django.db import DatabaseError, InterfaceError, router
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from stator.conf import read_settings
from stator.exposition import CONTENT_TYPE, exposed
from stator.metrics import metrics
from stator.models import StatorModel, Worker
from stator.runner import managed
from stator.views import is_authorised


@never_cache
@require_safe
def show_metrics(request: HttpRequest) -> HttpResponse:
    """Show the metrics to requests with ``Authorization: Bearer TOKEN``.

    Other requests, and all requests if no token is set, get a 404.
    """
    settings, problems = read_settings()
    if problems or not is_authorised(request, settings):
        raise Http404
    return HttpResponse(exposed(metrics()), content_type=CONTENT_TYPE)


@never_cache
@require_safe
def show_health(request: HttpRequest) -> HttpResponse:
    """Answer 200 while the process answers at all; no query, so that an outage of the database ends no process."""
    return HttpResponse("alive\n", content_type="text/plain")


@never_cache
@require_safe
def show_readiness(request: HttpRequest) -> HttpResponse:
    """Answer 200 if the databases of all managed models answer, else 503 without a reason."""
    for alias in {router.db_for_write(model) for model in managed(StatorModel.subclasses)}:
        try:
            Worker.objects.using(alias).live().exists()
        except (DatabaseError, InterfaceError):
            return HttpResponse("not\n", content_type="text/plain", status=503)
    return HttpResponse("ready\n", content_type="text/plain")
