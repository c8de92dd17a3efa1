"""Runs a worker for some seconds on request, for hosts that have no long-lived processes."""

from django.http import Http404, HttpRequest, HttpResponse
from django.views import View


class RequestRunner(View):
    """A worker within a request."""

    def post(self, request: HttpRequest) -> HttpResponse:
        """Run."""
        raise Http404
