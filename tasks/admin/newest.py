"""Admin of tables that may be large: sorted by number, and searched among their newest rows."""

from typing import Any

from django.db.models import Model, Q, QuerySet
from django.http import HttpRequest

from stator.admin.filters import found_once
from stator.admin.listing import AnyAddressAdmin
from stator.admin.managed import StatorAdmin
from stator.admin.read_only import newest


class NewestAdmin(StatorAdmin):
    """A managed model whose list finds exact values in all rows, and parts of values among the newest."""

    def exactly(self, words: str, using: str) -> Q:
        """Return the condition for rows that have exactly these words in an indexed column."""
        raise NotImplementedError

    def unsortable_if_many(self, name: str) -> bool:
        """Return True: no column has an index for it."""
        return True

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Model], search_term: str
    ) -> tuple[QuerySet[Model], bool]:
        """Return the rows that match exactly, and matches among the newest."""
        words = search_term.strip()
        if not words:
            return queryset, False
        rows = self.model._default_manager.using(queryset.db).all()
        matching, _ = super().get_search_results(request, newest(rows, "pk"), search_term)
        return queryset.filter(self.exactly(words, queryset.db) | Q(pk__in=found_once(matching))), False


class OperatedAdmin(NewestAdmin):
    """Rows that programs publish and workers delete. Nobody edits them, and operators have actions."""

    list_select_related = ("queue",)
    ordering = ("-pk",)

    # The permissions below replace Django's, but do not depend on the object.
    differs_by_object = AnyAddressAdmin.differs_by_object

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Return False: nobody edits or deletes such a row. A user with the change permission may operate it."""
        return False

    has_delete_permission = has_change_permission

    def has_retry_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """Return whether the user may retry, unlock, cancel and requeue."""
        return request.user.has_perm(f"tasks.change_{self.opts.model_name}")

    def get_list_display(self, request: HttpRequest) -> Any:
        """Return the columns of the class only; the framework's columns are on the page of each row."""
        return self.list_display


def number_in(words: str) -> list[int]:
    """Return the number in the words of a search, if a key can have it."""
    return [int(words)] if words.isascii() and words.isdecimal() and len(words) < 19 else []
