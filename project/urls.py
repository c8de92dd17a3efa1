"""Where things are on the site: the admin, and the worker that runs inside a request."""

from django.contrib import admin
from django.urls import path

from stator.views import RequestRunner

urlpatterns = [
    path("admin/", admin.site.urls),
    path("stator/run/", RequestRunner.as_view(), name="stator-run"),
]
