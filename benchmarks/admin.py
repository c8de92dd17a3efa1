"""The admin whose pages are measured."""

from django.contrib import admin

from benchmarks.models import PageItem
from stator.admin import StatorAdmin


@admin.register(PageItem)
class PageItemAdmin(StatorAdmin):
    """As a project would have it: with a column of its own, and a search that an index serves."""

    list_display = ("name",)
    search_fields = ("name__startswith",)
