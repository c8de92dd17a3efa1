"""Views for whoever watches the site: figures for Prometheus, and whether it lives and can work."""

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
    """The figures, for requests with ``Authorization: Bearer TOKEN``; 404 without, as when no token is set."""
    settings, problems = read_settings()
    if problems or not is_authorised(request, settings):
        raise Http404
    return HttpResponse(exposed(metrics()), content_type=CONTENT_TYPE)


@never_cache
@require_safe
def show_health(request: HttpRequest) -> HttpResponse:
    """200 as long as the process answers at all; no database is asked, so that an outage ends no process."""
    return HttpResponse("alive\n", content_type="text/plain")


@never_cache
@require_safe
def show_readiness(request: HttpRequest) -> HttpResponse:
    """200 when the databases of all managed models answer, else 503; nothing is said about why."""
    for alias in {router.db_for_write(model) for model in managed(StatorModel.subclasses)}:
        try:
            Worker.objects.using(alias).live().exists()
        except (DatabaseError, InterfaceError):
            return HttpResponse("not\n", content_type="text/plain", status=503)
    return HttpResponse("ready\n", content_type="text/plain")
