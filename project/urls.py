"""Where things are on the site: the admin, the API for programs, and the worker that runs inside a request."""

from django.contrib import admin
from django.urls import include, path

from stator.views import RequestRunner

urlpatterns = [
    path("admin/", admin.site.urls),
    path("api/", include("tasks.api.urls")),
    path("stator/run/", RequestRunner.as_view(), name="stator-run"),
]
