"""Steps in a process with the settings of the shop: each function is one test. ``python steps.py NAME ...``."""

import json
import sys
import traceback
from typing import Any

import django

django.setup()

from django.conf import settings  # noqa: E402
from django.core import mail  # noqa: E402 - models need settings
from django.test import Client  # noqa: E402
from django.test.utils import setup_test_environment  # noqa: E402

from examples.orders import payments  # noqa: E402
from examples.orders.graph import warehouse  # noqa: E402
from examples.orders.models import Order, Stock  # noqa: E402
from stator.testing import advance, drain  # noqa: E402

asked: list[tuple[str, str]] = []


def order(**columns: Any) -> Order:
    """An order of the only lamp."""
    stock = Stock.objects.get(sku="lamp")
    return Order.objects.create(stock=stock, amount=4900, name="Ada", email="ada@example.org", address="x", **columns)


def state_of(row: Order) -> str:
    """The state as it is stored."""
    return str(Order.objects.get(pk=row.pk).state)


def told(number: object, secret: str = "s") -> Any:
    """The answer to a webhook."""
    body = json.dumps({"order": number}).encode()
    headers = {"X-Signature": payments.signature(body, secret)}
    return Client().post("/orders/paid/", body, content_type="application/json", headers=headers)


def webhook_moves_an_order_once() -> None:
    row = order()
    drain(Order)
    assert (state_of(row), len(asked)) == ("awaiting_payment", 1)
    assert told(row.pk).json() == {"order": row.pk, "moved": 1}
    assert told(row.pk).json() == {"order": row.pk, "moved": 0}
    assert state_of(row) == "paid"


def webhook_that_comes_too_early_is_not_lost() -> None:
    row = order()
    assert told(row.pk).json() == {"order": row.pk, "moved": 0}
    drain(Order)
    assert state_of(row) == "packing"


def webhook_is_refused_if_anybody_else_sends_it() -> None:
    row = order(state="awaiting_payment")
    assert told(row.pk, secret="guessed").status_code == 403
    assert told(row.pk + 1).status_code == 404
    assert told("x").status_code == 400
    assert Client().get("/orders/paid/").status_code == 405
    assert state_of(row) == "awaiting_payment"


def order_without_payment_expires_and_a_late_one_is_repaid() -> None:
    row = order(state="awaiting_payment")
    advance(1801, Order)
    drain(Order)
    assert (state_of(row), asked) == ("expired", [])
    assert told(row.pk).json() == {"order": row.pk, "moved": 0}
    drain(Order)
    assert (state_of(row), [kind for kind, _ in asked]) == ("refunded", ["refunds"])


def last_lamp_is_sold_once_and_the_other_order_repaid() -> None:
    rows = [order(state="paid") for _ in range(2)]
    drain(Order)
    assert sorted(map(state_of, rows)) == ["packing", "refunded"]
    assert Stock.objects.get().quantity == 0
    assert [kind for kind, _ in asked] == ["refunds"]


def packed_order_is_mailed_with_its_parcel() -> None:
    row = order(state="packing")
    drain(Order)
    [claim] = warehouse().claim(worker="robot")
    assert claim.task.data == {"order": row.pk, "sku": "lamp", "quantity": 1, "address": "x"}
    claim.resolve({"parcel": "P-1"})
    advance(5, Order)
    drain(Order)
    assert state_of(row) == "shipped"
    [sent] = mail.outbox
    assert "P-1" in sent.body
    assert sent.extra_headers["Message-ID"].endswith("@shop.example>")


def order_that_the_robot_gives_up_is_repaid() -> None:
    row = order(state="packing")
    drain(Order)
    warehouse().tasks.get().cancel()
    advance(5, Order)
    drain(Order)
    assert (state_of(row), [kind for kind, _ in asked]) == ("refunded", ["refunds"])


def tried(name: str) -> str:
    """Run a test in an empty shop with one lamp; return the traceback if it fails."""
    Order.objects.all().delete()
    warehouse().tasks.all().delete()
    Stock.objects.update(quantity=1)
    asked.clear()
    mail.outbox = []
    try:
        globals()[name]()
    except Exception:
        return traceback.format_exc()
    return ""


if __name__ == "__main__":
    setup_test_environment()
    settings.PROVIDER_SECRET = "s"
    payments._post = lambda path, data, key: asked.append((path, key))  # type: ignore[assignment]
    print(json.dumps({name: tried(name) for name in sys.argv[1:]}))
