"""The graphs of a receipt and of an expense, and the forms of the events."""

import logging
from typing import Any

from django import forms
from django.core.mail import send_mail

from examples.approvals import bank, ocr
from stator import State, StateGraph
from stator.exceptions import Fail

logger = logging.getLogger("approvals")

DAY = 86400
APPROVE, DECIDE = "approvals.approve_expense", "approvals.decide_expense"


class ReceiptGraph(StateGraph):
    """A service reads the amount of a receipt."""

    scanned = State(try_interval=60, saves=["cents"])
    read = State()
    unreadable = State()

    scanned.transitions_to(read)
    scanned.fails_to(unreadable)

    @classmethod
    def handle_scanned(cls, receipt: Any) -> State:
        """Read the receipt, and say how far that is."""
        lines, count = [], len(receipt.scan.splitlines())
        for line in ocr.read_lines(receipt.scan):
            lines.append(line)
            logger.info("receipt %s says %s", receipt.pk, line)
            receipt.stator.progress(len(lines), count, f"line {len(lines)} of {count}")
        try:
            receipt.cents = ocr.total(lines)
        except ocr.UnreadableError as error:
            raise Fail(str(error)) from error
        return cls.read


class ApproveForm(forms.Form):
    """What an approver says."""

    note = forms.CharField(max_length=200, required=False)


class RejectForm(forms.Form):
    """Why an expense is rejected."""

    why = forms.CharField(max_length=200)


class VouchForm(forms.Form):
    """What is on each receipt that the service could not read."""

    euros = forms.DecimalField(min_value=0, decimal_places=2)


def is_submitter(expense: Any, user: Any) -> bool:
    """Return whether a user has submitted the expense; the name of this function is part of the refusal."""
    return bool(expense.submitter_id == getattr(user, "pk", None))


class ExpenseGraph(StateGraph):
    """All receipts are read; two different people approve, and not the submitter; the bank pays.

    If a receipt cannot be read, the finance team says what is on it. If nobody decides for a week, it decides alone.
    """

    scanning = State(expect_within=3600)
    unclear = State(try_interval=DAY)
    submitted = State(try_interval=DAY, expect_within=3 * DAY)
    escalated = State(try_interval=DAY, expect_within=DAY)
    approved = State(try_interval=60)
    rejected = State(try_interval=60)
    paid = State()
    closed = State()

    scanning.when_all("receipts", in_=[ReceiptGraph.read]).to(submitted)
    scanning.when_any("receipts", in_=[ReceiptGraph.unreadable]).to(unclear)
    unclear.on("vouch", permission=DECIDE, form=VouchForm).to(submitted)
    unclear.on("reject", permission=DECIDE, form=RejectForm).to(rejected)
    submitted.on("approve", permission=APPROVE, form=ApproveForm, unless=is_submitter, count=2).to(approved)
    submitted.on("reject", permission=APPROVE, form=RejectForm).to(rejected)
    submitted.times_out_to(escalated, seconds=7 * DAY)
    escalated.on("approve", permission=DECIDE, form=ApproveForm, unless=is_submitter).to(approved)
    escalated.on("reject", permission=DECIDE, form=RejectForm).to(rejected)
    approved.transitions_to(paid)
    rejected.transitions_to(closed)

    @classmethod
    def handle_unclear(cls, expense: Any) -> None:
        """Ask the finance team what is on a receipt, and again every day."""
        ask(expense, DECIDE, "has a receipt that nobody could read")

    @classmethod
    def handle_submitted(cls, expense: Any) -> None:
        """Ask those who may approve, and again every day. Vouched receipts get their amount first."""
        event = expense.stator.event
        if event and event.name == "vouch":
            expense.vouch(round(100 * float(event.payload["euros"])))
        ask(expense, APPROVE, "waits for you")

    @classmethod
    def handle_escalated(cls, expense: Any) -> None:
        """Ask the finance team to decide, and again every day."""
        ask(expense, DECIDE, "waits for you, and nobody has decided for a week")

    @classmethod
    def handle_approved(cls, expense: Any) -> State:
        """Pay. If the worker dies in between, what the bank has confirmed is not asked for again."""
        reference = expense.stator.step("transfer", lambda: bank.transfer(expense, key=expense.stator.idempotency_key))
        expense.stator.step("mail", lambda: tell(expense, f"is paid by {reference}"))
        return cls.paid

    @classmethod
    def handle_rejected(cls, expense: Any) -> State:
        """Mail the submitter why the expense is rejected."""
        event = expense.stator.event
        tell(expense, f"is rejected by {event.sender}: {event.payload['why']}" if event else "is rejected")
        return cls.closed


def ask(expense: Any, permission: str, what: str) -> None:
    """Send a mail to all who have a permission, except the submitter."""
    users = type(expense.submitter).objects.with_perm(permission).exclude(pk=expense.submitter_id)
    mail(expense, what, sorted(user.email for user in users))


def tell(expense: Any, what: str) -> None:
    """Send a mail to the submitter."""
    mail(expense, what, [expense.submitter.email])


def mail(expense: Any, what: str, addresses: list[str]) -> None:
    """Send a mail about an expense."""
    logger.info("mailing %s that expense %s %s", ", ".join(addresses), expense.pk, what)
    send_mail(f"Expense {expense.pk} {what}", f"{expense.title}, {expense.euros}", None, addresses)
