"""``python -m examples.orders.manage orders open|place|show``."""

from typing import Any

from django.core.management import BaseCommand, CommandError, CommandParser
from django.db import transaction
from django.db.models import Count

from examples.orders.graph import WAREHOUSE
from examples.orders.models import Order, Stock
from tasks.models import Queue


class Command(BaseCommand):
    """The command of the shop."""

    help = "Open the shop, place orders, and count them by state."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the subcommands."""
        acts = parser.add_subparsers(dest="act", metavar="open|place|show", required=True)
        opened = acts.add_parser("open", help="Create the warehouse's queue, and fill the stock.")
        opened.add_argument("--lamps", type=int, default=20, metavar="N", help="How many are in stock (default: 20).")
        placed = acts.add_parser("place", help="Place orders of a lamp each.")
        placed.add_argument("count", type=int, nargs="?", default=1, metavar="N", help="How many (default: 1).")
        acts.add_parser("show", help="Count orders by state.")

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the subcommand."""
        for line in getattr(self, f"_{options['act']}")(options):
            self.stdout.write(line)

    def _open(self, options: Any) -> list[str]:
        if options["lamps"] < 0:
            raise CommandError(f"--lamps {options['lamps']} must be at least 0")
        Queue.objects.get_or_create(name=WAREHOUSE, defaults={"actions_elsewhere": True, "max_attempts": 5})
        stock, _ = Stock.objects.update_or_create(sku="lamp", defaults={"quantity": options["lamps"], "price": 4900})
        return [f"The shop is open: {stock}."]

    def _place(self, options: Any) -> list[str]:
        if not 1 <= options["count"] <= 10_000:
            raise CommandError(f"{options['count']} orders cannot be placed at once; give a number from 1 to 10000")
        stock = Stock.objects.filter(sku="lamp").first()
        if stock is None:
            raise CommandError("the shop is not open; run: orders open")
        customer = {"name": "Ada", "email": "ada@example.org", "address": "12 St James's Square"}
        with transaction.atomic():
            Order.objects.bulk_create(
                Order(stock=stock, amount=stock.price, **customer) for _ in range(options["count"])
            )
        return [f"{options['count']} placed."]

    def _show(self, options: Any) -> list[str]:
        counts = Order.objects.values_list("state").annotate(count=Count("pk")).order_by("state")
        left = Stock.objects.filter(sku="lamp").values_list("quantity", flat=True).first()
        return [*(f"{state}: {count}" for state, count in counts), f"Lamps left: {left or 0}"]
