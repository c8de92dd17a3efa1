"""The index in the admin, to be searched; it is made from files, so nothing in it can be edited."""

from typing import Any

from django.contrib import admin

from examples.codeindex.models import SourceFile, Symbol


class ReadOnly:
    """For an admin of rows that are made by workers."""

    def has_add_permission(self, request: Any, obj: Any = None) -> bool:
        """Nobody adds rows by hand."""
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:
        """Nobody edits rows by hand."""
        return False


@admin.register(SourceFile)
class SourceFileAdmin(ReadOnly, admin.ModelAdmin):
    """Files by path, with their state."""

    list_display = ("path", "state", "line_count", "size", "error")
    list_filter = ("state", "root")
    search_fields = ("path",)
    ordering = ("path",)


@admin.register(Symbol)
class SymbolAdmin(ReadOnly, admin.ModelAdmin):
    """Symbols by name, with the file that defines them."""

    list_display = ("qualified_name", "kind", "file", "line", "summary")
    list_filter = ("kind",)
    list_select_related = ("file",)
    search_fields = ("name", "qualified_name")
    ordering = ("name", "pk")
