"""A worker's own small HTTP server: /metrics for Prometheus, /health and /ready for probes."""

import logging
import socket
import sys
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import TYPE_CHECKING

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from stator.worker.measures import WorkerMetrics

if TYPE_CHECKING:
    from stator.worker.worker import Worker

logger = logging.getLogger("stator.worker")

# Seconds that a client may be silent.
PATIENCE = 10.0


class Endpoint:
    """A server that listens when it is made, or raises ``OSError``; it answers once ``start`` has given it a worker."""

    def __init__(self, address: str, port: int) -> None:
        self._server = (_Server6 if ":" in address else _Server)((address, port), _Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="stator-endpoint", daemon=True)

    @property
    def port(self) -> int:
        """The port that it listens on; the system chooses one if 0 was asked for."""
        return int(self._server.server_address[1])

    def start(self, worker: "Worker") -> None:
        """Answer requests about a worker that is about to run."""
        self._server.worker = worker
        self._thread.start()

    def stop(self) -> None:
        """Stop answering."""
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    worker: "Worker"

    def server_bind(self) -> None:
        """Bind without looking up this host's name, which may take long and is not used."""
        TCPServer.server_bind(self)

    def handle_error(self, request: object, client_address: object) -> None:
        """Log at debug level only: a client that hung up is no news, and standard error is for events."""
        logger.debug("stator.endpoint_failed", extra={"error": repr(sys.exc_info()[1])})


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = PATIENCE
    server_version = "stator"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer one of the three paths."""
        worker = self.server.worker
        match self.path.partition("?")[0]:
            case "/metrics":
                self._answer(200, generate_latest(WorkerMetrics(worker)), CONTENT_TYPE_PLAIN_0_0_4)
            case "/health":
                self._tell("alive" if worker.watchdog.sees_life and not worker.health.trouble() else "")
            case "/ready":
                well = "ready" if worker.is_ready and worker.watchdog.sees_life else ""
                self._tell(well, [f"left out: {operations.lacking}" for operations in worker.tables.left_out])
            case _:
                self._answer(404, b"not found; use /metrics, /health or /ready\n")

    def _tell(self, well: str, further: Sequence[str] = ()) -> None:
        self._answer(200 if well else 503, "".join(f"{line}\n" for line in (well or "not", *further)).encode())

    def _answer(self, status: int, body: bytes, content_type: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base class has it
        """Log nothing: a line for each probe would drown the events."""
