"""The stock, and the orders."""

from django.db import models

from examples.orders.graph import OrderGraph
from stator.models import StateField, StatorModel


class Stock(models.Model):
    """An article, and how many of it are left."""

    sku = models.CharField(max_length=40, unique=True)
    quantity = models.PositiveIntegerField(default=0)
    price = models.PositiveIntegerField(help_text="In cents.")

    def __str__(self) -> str:
        return f"{self.sku} ({self.quantity} left)"


class Order(StatorModel):
    """An order of one article. ``amount`` is in cents; ``paid_at``: when the webhook reported the payment."""

    stock = models.ForeignKey(Stock, on_delete=models.PROTECT, related_name="orders")
    quantity = models.PositiveIntegerField(default=1)
    amount = models.PositiveIntegerField()
    name = models.CharField(max_length=80)
    email = models.EmailField()
    address = models.CharField(max_length=200)
    paid_at = models.DateTimeField(null=True, blank=True)
    parcel = models.CharField(max_length=40, blank=True)
    state = StateField(OrderGraph)

    class StatorMeta:
        """With a history, which the admin shows as a timeline."""

        history = True

    def __str__(self) -> str:
        return f"Order {self.pk}"
