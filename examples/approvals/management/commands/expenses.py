"""``expenses open|submit|show``: people who approve, what they approve, and what the bank paid."""

from typing import Any

from django.contrib.auth.models import Permission, User
from django.core.management.base import BaseCommand, CommandParser
from django.db import transaction

from examples.approvals.models import Expense, Receipt, Transfer

# The people of the example, with what they may do. Their passwords are their names.
PEOPLE = {
    "ina": ("view_expense", "view_receipt"),
    "anna": ("view_expense", "view_receipt", "approve_expense"),
    "ben": ("view_expense", "view_receipt", "approve_expense"),
    "fay": ("view_expense", "view_receipt", "view_transfer", "decide_expense"),
}


class Command(BaseCommand):
    """Prepare the example, and use it from a shell."""

    help = "Create the people of the example, submit expenses with receipts, and show where they are."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the subcommands."""
        commands = parser.add_subparsers(dest="command", required=True)
        commands.add_parser("open", help="Create the people; each has their name as password.")
        submit = commands.add_parser("submit", help="Submit an expense of Ina.")
        submit.add_argument("title")
        submit.add_argument("receipt", nargs="+", help="What is on a receipt; the last amount on it counts.")
        commands.add_parser("show", help="Show where the expenses are, and what they wait for.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do what the subcommand says."""
        getattr(self, options["command"])(options)

    def open(self, options: dict[str, Any]) -> None:
        """Create the people."""
        for name, permissions in PEOPLE.items():
            user = User.objects.filter(username=name).first() or User.objects.create_user(
                name, f"{name}@example.org", name, is_staff=True
            )
            user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
        self.stdout.write(f"People: {', '.join(PEOPLE)}. Each has their name as password.")

    def submit(self, options: dict[str, Any]) -> None:
        """Submit an expense."""
        ina = User.objects.get(username="ina")
        with transaction.atomic():
            expense = Expense.objects.create(submitter=ina, title=options["title"])
            Receipt.objects.bulk_create(Receipt(expense=expense, scan=scan) for scan in options["receipt"])
        self.stdout.write(str(expense))

    def show(self, options: dict[str, Any]) -> None:
        """Show all expenses, and what the bank has transferred."""
        for expense in Expense.objects.order_by("pk").prefetch_related("receipts"):
            self.stdout.write(f"{expense} {expense.euros} is {expense.state}.")
            for reason in expense.explain():
                self.stdout.write(f"  {reason.sentence}")
        for transfer in Transfer.objects.order_by("pk"):
            self.stdout.write(str(transfer))
