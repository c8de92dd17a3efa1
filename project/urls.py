"""URLs of the site: the admin, the HTTP API, a worker inside a request, and endpoints for monitoring."""

from django.contrib import admin
from django.urls import include, path

from stator.views import RequestRunner  # stator.extensions.views

urlpatterns = [
    path("admin/", admin.site.urls),
    path("api/", include("tasks.api.urls")),  # tasks.extensions.api
    path("stator/run/", RequestRunner.as_view(), name="stator-run"),  # stator.extensions.views
    path("stator/", include("stator.urls")),  # stator.extensions.views
]
