"""The admin, and the HTTP API by which programs send events."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("api/", include("tasks.api.urls")),
]
