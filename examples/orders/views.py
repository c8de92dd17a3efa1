"""The webhook of the payment provider."""

import hmac
import json

from django.conf import settings
from django.db.models.functions import Now
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from examples.orders.models import Order
from examples.orders.payments import signature


@csrf_exempt
@require_POST
def paid(request: HttpRequest) -> JsonResponse:
    """Store that an order is paid, and move it if it waits for the payment.

    Webhooks arrive twice, late, and before the answer to the request that caused them. So the payment is stored first.
    If the order does not wait for it yet, the rule of its graph moves it later, within ``SCHEDULE_INTERVAL``.
    """
    given = request.headers.get("X-Signature", "")
    secret = settings.PROVIDER_SECRET
    if not secret or not hmac.compare_digest(given.encode(), signature(request.body, secret).encode()):
        return JsonResponse({"error": "wrong signature"}, status=403)
    try:
        number = int(json.loads(request.body)["order"])
    except (ValueError, KeyError, TypeError):
        return JsonResponse({"error": 'send {"order": NUMBER}'}, status=400)
    unpaid = Order.objects.filter(pk=number, paid_at=None)
    if not unpaid.update(paid_at=Now()) and not Order.objects.filter(pk=number).exists():
        return JsonResponse({"error": f"no order {number}"}, status=404)
    moved = Order.stator.in_state("awaiting_payment").filter(pk=number).move("paid", actor="provider", reason="webhook")
    return JsonResponse({"order": number, "moved": moved})
