"""The graph of an order."""

from email.utils import formataddr
from typing import Any

from django.core.mail import EmailMessage
from django.db.models import F, Q

from examples.orders import payments
from stator import Fail, State, StateGraph, TryAgainLater

# The queue that the robot of the warehouse claims from.
WAREHOUSE = "warehouse"


class OrderGraph(StateGraph):
    """The states from the order to the parcel.

    Only the provider's webhook moves an order on from ``awaiting_payment``; without one it expires.
    """

    placed = State(try_interval=10, max_runtime=10, expect_within=600)
    awaiting_payment = State(externally_progressed=True)
    paid = State(try_interval=30, atomic=True)
    packing = State(try_interval=2, saves=["parcel"], expect_within=3600)
    packed = State(try_interval=30, max_runtime=30)
    refunding = State(try_interval=30, max_runtime=10)
    shipped = State()
    refunded = State()
    expired = State(externally_progressed=True)

    placed.transitions_to(awaiting_payment)
    awaiting_payment.when(Q(paid_at__isnull=False)).to(paid)
    awaiting_payment.times_out_to(expired, seconds=1800)
    # The money came too late.
    expired.when(Q(paid_at__isnull=False)).to(refunding)
    paid.transitions_to(packing, refunding)
    packing.transitions_to(packed)
    packing.fails_to(refunding)
    packed.transitions_to(shipped)
    refunding.transitions_to(refunded)

    @classmethod
    def handle_placed(cls, order: Any) -> State:
        """Request the payment from the provider, which recognises a repeated request by its key."""
        payments.ask(order.pk, order.amount, key=order.stator.idempotency_key)
        return cls.awaiting_payment

    @classmethod
    def handle_paid(cls, order: Any) -> State:
        """Take the goods from the stock. The state is atomic: this and the move are one transaction."""
        enough = order.stock.__class__.objects.filter(pk=order.stock_id, quantity__gte=order.quantity)
        taken = enough.update(quantity=F("quantity") - order.quantity)
        return cls.packing if taken else cls.refunding

    @classmethod
    def handle_packing(cls, order: Any) -> State:
        """Have the robot pack it. By its key, the queue has one task for each order, however often this is called."""
        data = {"order": order.pk, "sku": order.stock.sku, "quantity": order.quantity, "address": order.address}
        task = warehouse().publish("pack", data, key=f"order-{order.pk}").task
        if task.status in ("errored", "canceled"):
            raise Fail(f"the warehouse does not pack it: task {task.pk} is {task.status}")
        if task.status != "completed":
            raise TryAgainLater(2, f"the warehouse packs it: task {task.pk} is {task.status}")
        order.parcel = task.result["parcel"]
        return cls.packed

    @classmethod
    def handle_packed(cls, order: Any) -> State:
        """Send a mail to the customer. If it is sent twice after a crash, both mails have the same Message-ID."""
        key = order.stator.idempotency_key.replace(":", ".")
        text = f"Your parcel {order.parcel} is on its way."
        EmailMessage(
            f"Order {order.pk}", text, to=[formataddr((order.name, order.email))],
            headers={"Message-ID": f"<{key}@shop.example>"},
        ).send()  # fmt: skip
        return cls.shipped

    @classmethod
    def handle_refunding(cls, order: Any) -> State:
        """Refund the money, once."""
        payments.refund(order.pk, order.amount, key=order.stator.idempotency_key)
        return cls.refunded


def warehouse() -> Any:
    """Return the queue of the robot."""
    from tasks.models import Queue  # noqa: PLC0415 - graphs are imported before models

    return Queue.objects.get(name=WAREHOUSE)
