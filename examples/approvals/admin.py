"""Expenses in the admin: the buttons for events, their forms and the inbox come from the framework."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from examples.approvals.models import Expense, Receipt, Transfer
from stator.admin import StatorAdmin

admin.site.register(Transfer)


@admin.register(Expense)
class ExpenseAdmin(StatorAdmin):
    """Expenses, the latest first."""

    list_display = ("__str__", "state", "submitter", "euros")
    list_filter = ("state",)
    list_select_related = ("submitter",)
    search_fields = ("title",)
    ordering = ("-pk",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the expenses with the receipts whose sum the list shows."""
        return super().get_queryset(request).prefetch_related("receipts")


@admin.register(Receipt)
class ReceiptAdmin(StatorAdmin):
    """Receipts, the latest first."""

    list_display = ("__str__", "state", "cents")
    list_filter = ("state",)
    ordering = ("-pk",)
