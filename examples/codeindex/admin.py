"""The index in the admin, to be searched. Workers make it from the files, so it is read-only."""

from typing import Any

from django.contrib import admin

from examples.codeindex.models import SourceFile, Symbol
from stator.admin import StatorAdmin


class ReadOnly:
    """The mixin of an admin whose rows only workers write."""

    def has_add_permission(self, request: Any, obj: Any = None) -> bool:
        """Return False: nobody adds rows by hand."""
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:
        """Return False: nobody edits rows by hand."""
        return False


@admin.register(SourceFile)
class SourceFileAdmin(ReadOnly, StatorAdmin):
    """Files by path, with their state; operators may retry and move them."""

    list_display = ("path", "state", "line_count", "error")
    list_filter = ("state", "root")
    search_fields = ("path",)
    ordering = ("path",)

    def has_retry_permission(self, request: Any, obj: Any = None) -> bool:
        """Return whether the user may retry files: with the permission to change them, which is not used otherwise."""
        return bool(request.user.has_perm("codeindex.change_sourcefile"))

    def has_move_permission(self, request: Any, obj: Any = None) -> bool:
        """Return whether the user may move files, which is a permission of its own for every managed model."""
        return bool(request.user.has_perm("codeindex.force_sourcefile"))


@admin.register(Symbol)
class SymbolAdmin(ReadOnly, admin.ModelAdmin):
    """Symbols by name, with the file that defines them."""

    list_display = ("qualified_name", "kind", "file", "line", "summary")
    list_filter = ("kind",)
    list_select_related = ("file",)
    # Without regard to case on every database.
    search_fields = ("name__stator_icontains", "qualified_name__stator_icontains")
    ordering = ("name", "pk")
