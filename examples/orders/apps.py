"""The Django app of the example."""

from django.apps import AppConfig


class OrdersConfig(AppConfig):
    """An app with orders and a stock."""

    name = "examples.orders"
    label = "orders"
    default_auto_field = "django.db.models.BigAutoField"
