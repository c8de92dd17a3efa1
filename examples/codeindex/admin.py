"""The index in the admin, to be searched; it is made from files, so nothing in it can be edited."""

from typing import Any

from django.contrib import admin

from examples.codeindex.models import SourceFile, Symbol
from stator.admin import StatorAdmin


class ReadOnly:
    """For an admin of rows that are made by workers."""

    def has_add_permission(self, request: Any, obj: Any = None) -> bool:
        """Nobody adds rows by hand."""
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:
        """Nobody edits rows by hand."""
        return False


@admin.register(SourceFile)
class SourceFileAdmin(ReadOnly, StatorAdmin):
    """Files by path, with their state; operators may retry and move them."""

    list_display = ("path", "state", "line_count", "error")
    list_filter = ("state", "root")
    search_fields = ("path",)
    ordering = ("path",)

    def has_retry_permission(self, request: Any, obj: Any = None) -> bool:
        """Who might change files if they could be changed may have them attempted again."""
        return bool(request.user.has_perm("codeindex.change_sourcefile"))

    def has_move_permission(self, request: Any, obj: Any = None) -> bool:
        """A permission of its own, as for every managed model."""
        return bool(request.user.has_perm("codeindex.force_sourcefile"))


@admin.register(Symbol)
class SymbolAdmin(ReadOnly, admin.ModelAdmin):
    """Symbols by name, with the file that defines them."""

    list_display = ("qualified_name", "kind", "file", "line", "summary")
    list_filter = ("kind",)
    list_select_related = ("file",)
    search_fields = ("name", "qualified_name")
    ordering = ("name", "pk")
