"""The commands of the example's README, in a process with its settings; prints what the last one prints."""

import django

django.setup()

from django.core.management import CommandError, call_command  # noqa: E402 - commands need settings

from examples.approvals import graph  # noqa: E402
from examples.approvals.models import Expense, Receipt, Transfer  # noqa: E402
from stator.testing import advance, attempt, drain  # noqa: E402

SEND = ("stator", "send", "approvals.Expense")


def refusal(*arguments: str) -> str:
    """What the command says when it refuses."""
    try:
        call_command(*arguments)
    except (CommandError, SystemExit) as error:
        return str(error)
    return "not refused"


def payment_that_fails_halfway() -> None:
    """Approve an expense while no mail can be sent: the bank is asked once."""
    call_command("expenses", "submit", "Ink", "Ink 9.00")
    ink = Expense.objects.latest("pk")
    drain(Receipt, Expense)
    ink.transition_perform("approved")
    sent, graph.send_mail = graph.send_mail, lambda *message: 1 / 0
    print("first attempt:", attempt(ink).failure.message)
    graph.send_mail = sent
    Transfer.objects.update(cents=1)
    attempt(ink)
    print("second attempt:", ink.state, *ink.transfers.values_list("cents", flat=True))
    ink.delete()


def reminders() -> None:
    """Let a day pass: who has to answer is asked again."""
    advance(86401, Expense)
    before = Expense.objects.get(pk=3).state_attempts
    drain(Expense)
    print("asked again:", Expense.objects.get(pk=3).state_attempts - before)


if __name__ == "__main__":
    call_command("migrate", verbosity=0)
    call_command("makemigrations", "approvals", check=True, dry_run=True)
    call_command("expenses", "open")
    for title, *receipts in (
        ("Train to Bern", "Ticket 79.50", "Seat 5.00"),
        ("A new piano", "Piano 12000.00"),
        ("Coffee for guests", "Cake 3.20", "(a stain)"),
    ):
        call_command("expenses", "submit", title, *receipts)
    call_command("expenses", "show")
    call_command("runstator", "--until-idle")
    call_command(*SEND, "1", "approve", "--by", "anna", "--payload", '{"note": "second class"}')
    print(refusal(*SEND, "1", "approve", "--by", "ina"))
    print(refusal(*SEND, "1", "approve", "--by", "anna"))
    call_command(*SEND, "1", "approve", "--by", "ben")
    call_command(*SEND, "2", "reject", "--by", "anna", "--payload", '{"why": "we have one"}')
    print(refusal(*SEND, "2", "approve", "--by", "ben"))
    call_command(*SEND, "3", "vouch", "--by", "fay", "--payload", '{"euros": "4.80"}')
    call_command("runstator", "--until-idle")
    payment_that_fails_halfway()
    reminders()
    print("--")
    call_command("expenses", "show")
