"""The shop's requests to its payment provider."""

import hashlib
import hmac
import json
from typing import Any
from urllib.request import Request, urlopen

from django.conf import settings

# Seconds; below the handlers' ``max_runtime``, so that the error names the request that hung.
TIMEOUT = 5


def ask(order: int, amount: int, *, key: str) -> None:
    """Request the payment of an order. The provider calls the webhook once it has the money."""
    _post("charges", {"order": order, "amount": amount}, key)


def refund(order: int, amount: int, *, key: str) -> None:
    """Request the refund of an order's money."""
    _post("refunds", {"order": order, "amount": amount}, key)


def signature(body: bytes, secret: str) -> str:
    """Return the signature of a webhook with this body, in hexadecimal."""
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def _post(path: str, data: dict[str, Any], key: str) -> None:
    """Send a request; raise ``OSError`` if it fails."""
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    request = Request(f"{settings.PROVIDER_URL}/{path}", json.dumps(data).encode(), headers)
    with urlopen(request, timeout=TIMEOUT) as answer:
        answer.read()
