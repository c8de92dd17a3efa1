"""The metrics of the site for Prometheus."""

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from stator.conf import read_settings
from stator.metrics import SiteMetrics
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
    return HttpResponse(generate_latest(SiteMetrics()), content_type=CONTENT_TYPE_PLAIN_0_0_4)


urlpatterns = [path("metrics/", show_metrics, name="metrics")]
