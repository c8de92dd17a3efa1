"""URLs for ``include("stator.urls")``: endpoints for monitoring, and answers by link."""

from django.urls import path

from stator.answering import show_answer
from stator.views import show_health, show_metrics, show_readiness

app_name = "stator"
urlpatterns = [
    path("metrics/", show_metrics, name="metrics"),
    path("health/", show_health, name="health"),
    path("ready/", show_readiness, name="ready"),
    path("answer/<str:token>/", show_answer, name="answer"),
]
