"""The paths of a site that has the API alone."""

from django.urls import include, path

urlpatterns = [path("api/", include("tasks.api.urls"))]
