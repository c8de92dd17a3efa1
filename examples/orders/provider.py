"""A payment provider to try the shop with: it accepts every payment, and calls the webhook a moment later.

``python -m examples.orders.provider --webhook http://127.0.0.1:8000/orders/paid/ [--port 9100]``

Like real providers, it recognises a repeated request by its ``Idempotency-Key``, signs its webhooks, and may send a
webhook twice: it always does.
"""

import argparse
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

from examples.orders.payments import signature

# Seconds from the request to the webhook; seconds between tries if the shop does not answer; and the most tries.
DELAY, AGAIN, TRIES = 0.2, 1.0, 30


class Provider(ThreadingHTTPServer):
    """Charges and refunds by their idempotency keys."""

    daemon_threads = True

    def __init__(self, port: int, webhook: str, secret: str) -> None:
        super().__init__(("127.0.0.1", port), Answer)
        self.webhook, self.secret = webhook, secret
        self.done: dict[str, tuple[str, Any]] = {}
        self.lock = threading.Lock()

    def take(self, kind: str, key: str, data: Any) -> bool:
        """Store a request; return whether it is new."""
        with self.lock:
            is_new = key not in self.done
            self.done.setdefault(key, (kind, data))
        return is_new

    def call_webhook(self, data: Any) -> None:
        """Call the webhook until the shop answers, 30 times at most."""
        body = json.dumps({"order": data["order"]}).encode()
        headers = {"Content-Type": "application/json", "X-Signature": signature(body, self.secret)}
        for _ in range(TRIES):
            try:
                with urlopen(Request(self.webhook, body, headers), timeout=5) as answer:
                    answer.read()
                return
            except URLError as error:
                print(f"provider: the webhook failed and is called again: {error}", flush=True)
                threading.Event().wait(AGAIN)


class Answer(BaseHTTPRequestHandler):
    """Answers POST ``/charges`` and ``/refunds``; GET ``/`` lists what was charged and refunded."""

    server: Provider

    def do_POST(self) -> None:
        """Accept a charge or a refund."""
        kind = self.path.strip("/")
        data = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.take(kind, self.headers["Idempotency-Key"], data) and kind == "charges":
            for _ in range(2):
                threading.Timer(DELAY, self.server.call_webhook, [data]).start()
        self._answer({"taken": True})

    def do_GET(self) -> None:
        """List all charges and refunds."""
        self._answer([{"kind": kind, **data} for kind, data in self.server.done.values()])

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Print nothing for each request."""

    def _answer(self, data: Any) -> None:
        body = json.dumps(data).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    """Answer until the process is ended."""
    parser = argparse.ArgumentParser(description="A payment provider to try the shop with.")
    parser.add_argument("--port", type=int, default=9100, help="The port to listen on (default: 9100).")
    parser.add_argument(
        "--webhook", default="http://127.0.0.1:8000/orders/paid/", help="The URL to call after a payment."
    )
    options = parser.parse_args()
    secret = os.environ.get("PROVIDER_SECRET", "only for trying this out")
    with Provider(options.port, options.webhook, secret) as server:
        print(f"provider: listening on http://127.0.0.1:{server.server_address[1]}", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("provider: stopped", flush=True)


if __name__ == "__main__":
    main()
