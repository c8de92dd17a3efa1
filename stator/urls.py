"""URLs for ``include("stator.urls")``: probes, and what extensions show."""

from django.urls import path
from django.utils.module_loading import import_string

from stator.batteries import extensions
from stator.views import show_health, show_readiness

app_name = "stator"
urlpatterns = [
    path("health/", show_health, name="health"),
    path("ready/", show_readiness, name="ready"),
    *(pattern for extension in extensions() for patterns in extension.urls for pattern in import_string(patterns)),
]
