"""A shop's orders: paid by webhook, packed by a robot over HTTP, and refunded if nothing is left in stock.

``examples/orders/README.rst`` shows how to run it. It is a site of its own, with its own settings.
"""
