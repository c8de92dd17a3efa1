"""Metrics for Prometheus: of the site, and of each worker at an endpoint of its own with ``--metrics-port``."""

from stator.seams import Extension

EXTENSION = Extension(
    name="metrics",
    parts=("stator.extensions.metrics.endpoint.parts",),
    urls=("stator.metrics.urlpatterns",),
    arguments=("stator.extensions.metrics.arguments",),
)
