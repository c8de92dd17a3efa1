"""Expenses, their receipts, and what the bank has transferred."""

from django.conf import settings
from django.db import models

from examples.approvals.graph import ExpenseGraph, ReceiptGraph
from stator.models import StateField, StatorModel


class Expense(StatorModel):
    """What somebody has paid for the company, with its receipts."""

    submitter = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="expenses")
    title = models.CharField(max_length=200)
    state = StateField(ExpenseGraph)

    class Meta:
        permissions = [
            ("approve_expense", "Can approve and reject"),
            ("decide_expense", "Can decide escalated ones"),
        ]

    class StatorMeta:
        """With a history, which has who approved what, and why."""

        history = True

    def __str__(self) -> str:
        return f"Expense {self.pk}: {self.title}"

    @property
    def cents(self) -> int:
        """The sum of the receipts."""
        return sum(receipt.cents or 0 for receipt in self.receipts.all())

    @property
    def euros(self) -> str:
        """The sum for people."""
        return f"EUR {self.cents / 100:,.2f}"

    def vouch(self, cents: int) -> None:
        """Set the amount of the receipts that could not be read."""
        self.receipts.filter(state=ReceiptGraph.unreadable).update(cents=cents)


class Receipt(StatorModel):
    """A receipt of an expense. ``scan``: what is on the paper; ``cents``: the amount, once it is read."""

    expense = models.ForeignKey(Expense, on_delete=models.CASCADE, related_name="receipts")
    scan = models.TextField()
    cents = models.PositiveIntegerField(null=True, blank=True)
    state = StateField(ReceiptGraph)

    class Meta:
        # By which the move of a receipt finds out whether the others are read.
        indexes = [models.Index(fields=["expense", "state"], name="receipts_of_expense")]

    def __str__(self) -> str:
        return f"Receipt {self.pk} of expense {self.expense_id}"


class Transfer(models.Model):
    """What the bank has booked, once for each ``key``."""

    expense = models.ForeignKey(Expense, on_delete=models.CASCADE, related_name="transfers")
    key = models.CharField(max_length=200, unique=True)
    cents = models.PositiveIntegerField()

    def __str__(self) -> str:
        return f"Transfer {self.pk} of {self.cents} cents for expense {self.expense_id}"
