"""The admin pages that are measured."""

from django.contrib import admin

from benchmarks.models import AwaitingItem, PageItem
from stator.admin import StatorAdmin


@admin.register(PageItem)
class PageItemAdmin(StatorAdmin):
    """A typical admin: one column of its own, and a search that an index serves."""

    list_display = ("name",)
    search_fields = ("name__startswith",)


@admin.register(AwaitingItem)
class AwaitingItemAdmin(StatorAdmin):
    """Objects that wait for people."""
